"""Bytes that last. Reading order:

- ``config_types``     the types of configuration values, and their parsers
- ``topic_config``     the configuration of a topic, by Kafka's names
- ``files``            the only module that opens, syncs and renames files
- ``checkpoint``, ``data_dir``   small text files; the directory: its lock, how the last run ended
- ``offset_index``, ``time_index``   the sparse indexes, in Kafka's layout
- ``segment_indexes``, ``segment``   one ``.log`` with its two indexes: state, append, sealing
- ``segment_loader``   bringing a segment back after a start, or from its log alone
- ``segment_reader``   how a fetch finds a batch, by offset and by time
- ``age``              how old records are, whatever their producers say
- ``open_segments``    how many sealed segments stay open for readers
- ``scan``             walking the batches of a file, past damage
- ``recovery``         what an unclean start finds, keeps and cuts
- ``partition_files``, ``producer_state_replay``, ``log_loader``   loading one partition
- ``log``              one partition on disk: append, sync, plans, retention
- ``memory_log``       one partition in memory: a bounded ring
- ``partition_log``    what the engine needs of both; ``partition_logs``   the open ones, by partition
- ``flusher``          group commit: one sync serves all who wait
- ``waiters``          long polls, woken by appends
- ``log_dir``          the threads, and the failure that stops the directory
- ``offset_checkpoints``, ``log_manager``   the logs of a data directory: opened, created, deleted, closed
- ``housekeeping``     checkpoints and retention
- ``cleaning``         log compaction: a package with a reading order of its own
- ``open_segments``, ``log_reader``   reads by offset and by time, on the loop or in a thread
- ``engine``           the interface above all of it; ``disk_views``   what only an engine with files offers
- ``data_dir_views``   segments, verification and free space of a data directory
- ``embedded``         the engine on this machine's disk and memory
- ``inspect``          ``stele dump`` and ``stele verify``
"""
