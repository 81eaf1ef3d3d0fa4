-- What a broker tells the others about itself with each heartbeat, as JSON: version, process, rates. NULL until the
-- first one, and for brokers of releases that tell nothing.
ALTER TABLE brokers ADD COLUMN report text;
