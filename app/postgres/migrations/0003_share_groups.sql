-- The states of share groups (KIP-932): one row per partition of a group. The ranges after its start offset are JSON,
-- as [first, last, state, delivery count], because each write replaces most of them.
CREATE TABLE share_partitions (
    group_id bytea NOT NULL,
    topic_id uuid NOT NULL,
    part int NOT NULL,
    topic text COLLATE "C" NOT NULL,
    state_epoch int NOT NULL,
    start_offset bigint NOT NULL,
    records text NOT NULL,
    PRIMARY KEY (group_id, topic_id, part)
) WITH (fillfactor = 50);
