"""Topics as Apache Iceberg tables: a process that reads topics and commits Parquet files. Needs the extra ``iceberg``.

Reading order, from the parts to the whole:

- ``errors``, ``options``  what a person must change; where broker, catalog and warehouse are
- ``columns``              the columns of records, and rows of batches in them
- ``files``                Parquet files by day, synced before a catalog names them
- ``tables``               tables of a catalog: their positions, and commits that depend on them
- ``reading``              the records of a topic that are visible, batch by batch
- ``upkeep``               small files, old snapshots, and files that no snapshot names
- ``topic``                one topic: from its position to the next commit
- ``status``, ``run``      what a supervisor reads; all topics, in a few threads
"""
