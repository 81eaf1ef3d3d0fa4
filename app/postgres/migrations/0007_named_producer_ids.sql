-- Each commit looks up the newest epoch of its producers that have a name.
CREATE INDEX named_producers_by_id ON named_producers (producer_id);
