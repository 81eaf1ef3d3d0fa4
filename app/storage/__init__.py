"""Bytes that last. Reading order:

- ``topic_config``     the configuration of a topic, by Kafka's names
- ``files``            the only module that opens, syncs and renames files
- ``offset_index``, ``time_index``   the sparse indexes, in Kafka's layout
- ``segment_indexes``, ``segment``   one ``.log`` with its two indexes: state, append, sealing
- ``segment_loader``   bringing a segment back after a start, or from its log alone
- ``segment_reader``   how a fetch finds a batch, by offset and by time
- ``age``              how old records are, whatever their producers say
- ``recovery``         what an unclean start finds, keeps and cuts
- ``partition_files``, ``producer_state_replay``, ``log_loader``   loading one partition
- ``log``              one partition on disk: append, sync, plans, retention
- ``memory_log``       one partition in memory: a bounded ring
- ``partition_log``    what the engine needs of both
- ``flusher``          group commit: one sync serves all who wait
- ``log_dir``          the threads, and the failure that stops the directory
- ``offset_checkpoints``, ``log_manager``   the logs of a data directory: opened, created, deleted, closed
- ``housekeeping``     checkpoints and retention
- ``cleaning``         log compaction: a package with a reading order of its own; the engine does not use it yet
- ``engine``           the interface above all of it
- ``embedded``         the engine on this machine's disk and memory
- ``inspect``          ``stele dump`` and ``stele verify``
"""
