"""Bytes that last. Reading order:

- ``topic_config``   the configuration of a topic, by Kafka's names
- ``files``          the only module that opens, syncs and renames files
- ``offset_index``, ``time_index``   the sparse indexes, in Kafka's layout
- ``segment``        one ``.log`` with its two indexes
- ``recovery``       what an unclean start finds, keeps and cuts
- ``log``            one partition on disk: segments, append, read plans, retention
- ``memory_log``     one partition in memory: a bounded ring
- ``flusher``        group commit: one sync serves all who wait
- ``engine``         the interface above all of it
- ``embedded``       the engine on this machine's disk and memory
- ``inspect``        ``stele dump`` and ``stele verify``
"""
