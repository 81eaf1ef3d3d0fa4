-- Committed offsets and groups that were deleted in the last day (ADR-0059): readers of __consumer_offsets learn of them
-- also from the next coordinator. The row of a group has an empty topic and partition -1.
CREATE TABLE group_deletions (
    group_id bytea NOT NULL,
    topic text NOT NULL,
    part int NOT NULL,
    deleted_at timestamptz NOT NULL DEFAULT now(),
    shard int GENERATED ALWAYS AS (get_byte(sha256(group_id), 0) & 31) STORED,
    PRIMARY KEY (group_id, topic, part)
);
CREATE INDEX group_deletions_shard ON group_deletions (shard, deleted_at);
