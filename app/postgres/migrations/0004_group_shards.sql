-- The shard of each group (ADR-0053): app/cluster/group_shards.py computes the same numbers. PostgreSQL fills the columns.
ALTER TABLE groups ADD shard int GENERATED ALWAYS AS (get_byte(sha256(group_id), 0) & 31) STORED;
ALTER TABLE consumer_groups ADD shard int GENERATED ALWAYS AS (get_byte(sha256(group_id), 0) & 31) STORED;
ALTER TABLE consumer_members ADD shard int GENERATED ALWAYS AS (get_byte(sha256(group_id), 0) & 31) STORED;
ALTER TABLE group_owners ADD shard int GENERATED ALWAYS AS (get_byte(sha256(group_id), 0) & 31) STORED;
ALTER TABLE group_offsets ADD shard int GENERATED ALWAYS AS (get_byte(sha256(group_id), 0) & 31) STORED;
ALTER TABLE share_partitions ADD shard int GENERATED ALWAYS AS (get_byte(sha256(group_id), 0) & 31) STORED;
CREATE INDEX groups_shard ON groups (shard);
CREATE INDEX consumer_groups_shard ON consumer_groups (shard);
CREATE INDEX consumer_members_shard ON consumer_members (shard);
CREATE INDEX group_owners_shard ON group_owners (shard);
CREATE INDEX group_offsets_shard ON group_offsets (shard);
CREATE INDEX share_partitions_shard ON share_partitions (shard);
