-- Compacted topics in shared storage (app/storage/shared/compactor.py).

-- Of a run that a pass of compaction has written: the offset up to which the pass knew all keys, so each record
-- that it removed has a newer one before it. Only such runs may have holes between their offsets.
-- keys_pos and keys_len: where the key index of a run is in its object, if it has one.
ALTER TABLE batches
    ADD COLUMN cleaned_until bigint,
    ADD COLUMN keys_pos int,
    ADD COLUMN keys_len int;

-- One row per log that was compacted or merged with a key index.
CREATE TABLE cleaned_logs (
    log_id bigint PRIMARY KEY,
    -- Where the next pass begins to map keys.
    first_dirty bigint NOT NULL DEFAULT 0,
    -- The salt of the hashes in all key indexes of the log; producers must not know it.
    key_salt bytea NOT NULL
) WITH (fillfactor = 70);
