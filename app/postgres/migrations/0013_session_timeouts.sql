-- How long after its last heartbeat a broker counts as dead. A broker of the version before has the default.
ALTER TABLE brokers ADD COLUMN session_timeout interval NOT NULL DEFAULT '5 seconds';
