"""Store records durably. Reading order:

- ``config_types``     the types of configuration values, and their parsers
- ``topic_config``     the configuration of a topic, by Kafka's names
- ``topic_partition``  the name of one partition
- ``transactional_produce``  the transaction of a produce request
- ``disk``             files, and threads for calls that wait for a disk
- ``segments``         the files of a partition, and how a fetch finds a batch in them
- ``recovery``         loading a partition at a start
- ``logs``             partitions on disk and in memory, and the logs of a data directory
- ``syncing``          group commit
- ``waiters``          long polls, woken by appends
- ``sequences``        which batch of an idempotent producer is its next one; for every engine
- ``stamps``           the times of batches, by ``message.timestamp.type``
- ``append_ticket``    the result of an append
- ``cleaning``         log compaction; ``cleaner``, ``passes``   its passes, and which failed
- ``keys``, ``key_reader``   which records are the newest of their keys; reads by key
- ``housekeeping``     checkpoints, retention and the rounds of compaction
- ``engine``           the interface above all of it; ``disk_views``   views of engines with files
- ``data_dir_views``   segments, verification and free space of a data directory
- ``replica_cover``, ``tiering``   waiting for the replica; segments that leave the disk for its bucket
- ``embedded``         the engine on this machine's disk and memory
- ``setup_problems``   explains wrong settings of shared storage
- ``shared``           the engine over PostgreSQL and an object store
- ``replica``          the replica of a data directory in a bucket
- ``inspection``       ``stele dump`` and ``stele verify``
"""
