-- Copies of topics of other clusters, which keep the offsets and leader epochs of their source (ADR-0079).

-- copy_phase: 0 nothing was copied, 1 only copies are accepted, 2 none are accepted any more. copied_epochs: leader epoch:4
-- and first offset:8 of each leader epoch that was copied, ascending, big-endian; once the copy has ended, those of the
-- epoch that began then follow.
ALTER TABLE logs
    ADD COLUMN copy_phase smallint NOT NULL DEFAULT 0,
    ADD COLUMN copied_epochs bytea;
