-- Open and aborted transactions of each log. The row lock of the log protects these rows.

-- first_open: the first offset of the oldest open transaction, NULL if none is open; readers of committed records stop
-- there. last_aborted: the offset of the newest marker that aborted one, so that most readers need not ask for more.
ALTER TABLE logs
    ADD COLUMN first_open bigint,
    ADD COLUMN last_aborted bigint NOT NULL DEFAULT -1;

CREATE TABLE open_transactions (
    log_id bigint NOT NULL,
    producer_id bigint NOT NULL,
    first_offset bigint NOT NULL,
    PRIMARY KEY (log_id, producer_id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);

-- last_offset is that of the marker.
CREATE TABLE aborted_transactions (
    log_id bigint NOT NULL,
    last_offset bigint NOT NULL,
    producer_id bigint NOT NULL,
    first_offset bigint NOT NULL,
    PRIMARY KEY (log_id, last_offset)
) WITH (autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX open_transactions_of_producer ON open_transactions (producer_id);

-- Transactional ids. A request locks the row of its id; a commit of batches locks those of its producers before logs.
-- Names are bytes, because they may contain zeros. partitions and groups are JSON: those of the open transaction;
-- partitions that batches added are in open_transactions only.
CREATE TABLE transactional_ids (
    transactional_id bytea PRIMARY KEY,
    producer_id bigint NOT NULL UNIQUE,
    epoch int NOT NULL,
    previous_producer_id bigint NOT NULL,
    last_epoch int NOT NULL,
    timeout_ms int NOT NULL,
    state text NOT NULL,
    started_at_ms bigint NOT NULL,
    updated_at_ms bigint NOT NULL,
    partitions text NOT NULL,
    groups text NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX transactional_ids_ongoing ON transactional_ids (started_at_ms) WHERE state = 'Ongoing';

-- Offsets that transactions commit. number counts up: the last one written wins. outcome is NULL until the transaction
-- ends; the coordinator of the group then moves the row to group_offsets, or drops it.
CREATE TABLE group_pending_offsets (
    number bigint GENERATED ALWAYS AS IDENTITY,
    producer_id bigint NOT NULL,
    producer_epoch int NOT NULL,
    group_id bytea NOT NULL,
    topic text COLLATE "C" NOT NULL,
    part int NOT NULL,
    topic_id uuid NOT NULL,
    committed_offset bigint NOT NULL,
    leader_epoch int NOT NULL,
    metadata bytea NOT NULL,
    committed_at_ms bigint NOT NULL,
    expires_at_ms bigint,
    outcome boolean,
    shard int GENERATED ALWAYS AS (get_byte(sha256(group_id), 0) & 31) STORED,
    PRIMARY KEY (group_id, topic, part, producer_id)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX group_pending_offsets_shard ON group_pending_offsets (shard, producer_id);
CREATE INDEX group_pending_offsets_of_producer ON group_pending_offsets (producer_id);

-- Answers to requests with an idempotency key, stored with the end of their transaction.
CREATE TABLE transaction_answers (
    key bytea PRIMARY KEY,
    digest bytea NOT NULL,
    answer bytea NOT NULL,
    created_at_ms bigint NOT NULL
);
CREATE INDEX transaction_answers_by_age ON transaction_answers (created_at_ms);

