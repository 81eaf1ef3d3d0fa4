"""The topic ``__consumer_offsets``. Reading order:

- ``offset_records``, ``replay_log``, ``offsets_view``   its records, and how a log of them is kept
- ``offsets_topic``, ``sharded_offsets_topic``   the topic of a broker on its own, and that of a cluster (ADR-0059)
"""
