"""Store records durably. Reading order:

- ``config_types``     the types of configuration values, and their parsers
- ``topic_config``     the configuration of a topic, by Kafka's names
- ``topic_partition``  the name of one partition
- ``transactional_produce``  what a produce request says of its transaction
- ``disk``             files, and threads for calls that wait for a disk
- ``segments``         the files of a partition, and how a fetch finds a batch in them
- ``recovery``         loading a partition at a start
- ``logs``             partitions on disk and in memory, and the logs of a data directory
- ``syncing``          group commit
- ``waiters``          long polls, woken by appends
- ``sequences``        which batch of an idempotent producer is its next one; for every engine
- ``stamps``           the times of batches, by ``message.timestamp.type``
- ``append_ticket``    what an append returns
- ``cleaning``         log compaction; ``cleaner``   its passes; ``pass_tally``   what they have done since the start
- ``keys``, ``key_reader``   which records are the newest of their keys; reads by key
- ``housekeeping``     checkpoints, retention and the rounds of compaction
- ``engine``           the interface above all of it; ``disk_views``   what only an engine with files offers
- ``data_dir_views``   segments, verification and free space of a data directory
- ``embedded``         the engine on this machine's disk and memory
- ``setup_problems``   what is wrong with the settings of shared storage, and what to do
- ``shared``           the engine over PostgreSQL and an object store
- ``inspection``       ``stele dump`` and ``stele verify``
"""
