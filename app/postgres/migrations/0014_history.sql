-- The history of the database (ADR-0071). A database that was promoted or restored may know less than its brokers do.
-- It then begins another history, whose epoch is greater than each leader epoch that clients have seen.

-- server: which PostgreSQL, and which of its timelines, the history was begun on. leader_epoch rises from epoch on with
-- each change of the live brokers, which members names. No row: no broker of this version has connected yet.
CREATE TABLE history (
    is_one boolean PRIMARY KEY DEFAULT true CHECK (is_one),
    id uuid NOT NULL,
    epoch int NOT NULL,
    server text NOT NULL,
    leader_epoch int NOT NULL,
    members text NOT NULL DEFAULT ''
) WITH (fillfactor = 50);

-- The first offset that was given out in each history, by log. The row lock of the log protects these rows.
CREATE TABLE log_epochs (
    log_id bigint NOT NULL,
    epoch int NOT NULL,
    start_offset bigint NOT NULL,
    PRIMARY KEY (log_id, epoch)
) WITH (autovacuum_vacuum_scale_factor = 0.02);

-- The newest epoch in log_epochs; -1: there is none.
ALTER TABLE logs ADD COLUMN epoch int NOT NULL DEFAULT -1;

-- beats: the heartbeats of an incarnation. A broker that has counted more than the database knows that it went back.
-- shows_epochs: the broker shows leader epochs to clients; those of the version before show -1.
ALTER TABLE brokers
    ADD COLUMN beats bigint NOT NULL DEFAULT 0,
    ADD COLUMN shows_epochs boolean NOT NULL DEFAULT false;
