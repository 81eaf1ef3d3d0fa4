"""Partitions on disk and in memory. Reading order:

- ``partition_log``    the engine's interface to both kinds; ``open_logs``   the open ones, by partition
- ``high_watermark``   which records readers do not see yet; ``flush_work``   one sync of a partition
- ``log``              one partition on disk: append, sync, plans, retention
- ``cuts``             how the log of a copy is cut back
- ``log_changes``      which logs have changed, for the replica
- ``memory_log``       one partition in memory: a bounded ring
- ``data_dir``, ``log_dir``   the directory: its lock, how the last run ended; the threads, and the failure that stops it
- ``offset_checkpoints``, ``manager``   the logs of a data directory: opened, created, deleted, closed
- ``reader``           reads by offset and by time, on the loop or in a thread
"""
