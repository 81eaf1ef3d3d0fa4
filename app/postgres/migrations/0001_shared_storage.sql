-- The metadata of the shared engine; app/storage/shared/meta.py explains the terms.

-- One row per partition. T1 updates it with each commit: the free half of a page keeps those updates
-- from touching an index.
CREATE TABLE logs (
    log_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    topic_id uuid NOT NULL,
    part int NOT NULL,
    log_start bigint NOT NULL DEFAULT 0,
    next_offset bigint NOT NULL DEFAULT 0,
    size_bytes bigint NOT NULL DEFAULT 0,
    unmerged_bytes bigint NOT NULL DEFAULT 0,
    merged_until bigint NOT NULL DEFAULT 0,
    -- Since when there are unmerged bytes without a pause; NULL if there are none.
    unmerged_since timestamptz,
    deleted_at timestamptz,
    UNIQUE (topic_id, part),
    CHECK (log_start <= next_offset)
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX logs_deleted ON logs (log_id) WHERE deleted_at IS NOT NULL;

-- state: c committed, d dead (was committed, no run names it), f fenced (never committed, never will be).
-- store: 0 the object store, 1 inline_objects.
CREATE TABLE objects (
    object_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key text COLLATE "C" NOT NULL UNIQUE,
    state "char" NOT NULL,
    store smallint NOT NULL,
    size bigint NOT NULL,
    uploader uuid NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    dead_at timestamptz,
    has_bytes boolean NOT NULL DEFAULT true,
    CHECK ((state = 'c') = (dead_at IS NULL))
) WITH (autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX objects_dead ON objects (dead_at) WHERE state <> 'c';

-- Objects without an object store. Batches may be compressed already, and readers want slices.
CREATE TABLE inline_objects (
    key text COLLATE "C" PRIMARY KEY,
    data bytea NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02);
ALTER TABLE inline_objects ALTER COLUMN data SET STORAGE EXTERNAL;

-- Runs, each of consecutive offsets. There is no foreign key: it would cost T1 more than it is worth,
-- because rows of an object are only inserted by the transaction that inserts the object.
CREATE TABLE batches (
    log_id bigint NOT NULL,
    last_offset bigint NOT NULL,
    base_offset bigint NOT NULL,
    object_id bigint NOT NULL,
    max_ts bigint NOT NULL,
    pos int NOT NULL,
    len int NOT NULL,
    -- The sparse index of a merged run; NULL in others.
    idx bytea,
    PRIMARY KEY (log_id, last_offset)
) WITH (autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX batches_object ON batches (object_id);

-- recent: base sequence:4, last sequence:4 and base offset:8 of each of the last batches, oldest first, big-endian.
-- The row lock of the log protects these rows too.
CREATE TABLE producer_state (
    log_id bigint NOT NULL,
    producer_id bigint NOT NULL,
    epoch smallint NOT NULL,
    is_whole boolean NOT NULL,
    recent bytea NOT NULL,
    last_at timestamptz NOT NULL,
    PRIMARY KEY (log_id, producer_id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);

-- Objects that lost a run. The same object may be in it more than once: a row is visible exactly
-- when the deletion is that it tells of.
CREATE TABLE suspects (
    suspect_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    object_id bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02);

-- Which logs some broker is merging. Only saves work: commit_merge checks all that it relies on.
CREATE TABLE upkeep (
    log_id bigint PRIMARY KEY,
    claimed_until timestamptz NOT NULL
);

-- The brokers that upload, by incarnation.
CREATE TABLE uploaders (
    uploader uuid PRIMARY KEY,
    seen timestamptz NOT NULL
) WITH (fillfactor = 50);
