"""Runs ``stele cdc`` as a process that the broker supervises."""
