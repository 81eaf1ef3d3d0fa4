-- When a named producer was used last, once partitions have forgotten it (producer_state). A table of its own, because
-- commits hold locks on the rows of named_producers.
CREATE TABLE named_producer_uses (
    producer_id bigint PRIMARY KEY,
    used_at timestamptz NOT NULL
);
-- What is forgotten already counts as used now.
INSERT INTO named_producer_uses SELECT DISTINCT producer_id, now() FROM named_producers;
