-- The epoch of the history of the database in which a producer got its producer id and epoch (ADR-0071). In a part that a
-- later history has forgotten, the next epochs may have been given out: they are not given out again. 0: not known.
ALTER TABLE transactional_ids ADD COLUMN history int NOT NULL DEFAULT 0;
ALTER TABLE named_producers ADD COLUMN history int NOT NULL DEFAULT 0;
