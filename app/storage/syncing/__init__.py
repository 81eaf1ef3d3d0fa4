"""Schedules and performs syncs of logs. Reading order:

- ``flush_schedule``   schedules background syncs
- ``loop_syncs``       when the event loop makes a sync itself
- ``flusher``          group commit: one sync serves all callers that wait
"""
