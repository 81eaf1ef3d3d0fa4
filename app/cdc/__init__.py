"""Changes out of PostgreSQL as a part of the broker: ``stele cdc`` as a process that it looks after."""
