"""The topic ``__consumer_offsets``. Reading order:

- ``records``, ``replay_log``, ``view``   its records, and how a log of them is kept
- ``standalone``, ``sharded``       the topic of a broker on its own, and that of a cluster (ADR-0059)
"""
