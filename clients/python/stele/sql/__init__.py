"""Run SQL statements over topics in a process of its own, for the broker (ADR-0081); needs the extra ``sql``.

- ``link``       frames to and from the broker
- ``statement``  what a statement may be, and which tables it names
- ``log``        the records of a topic as a table of Arrow batches, read while the statement runs
- ``manifests``  which Parquet files a snapshot has
- ``files``, ``remote``   files that the broker reads; as DuckDB asks for them
- ``values``     values with a schema as columns
- ``views``      what a statement sees of a topic
- ``answers``    rows as JSON, lines of JSON, CSV and Arrow
- ``worker``     the process: DuckDB without other files, network and settings, a transaction per statement
- ``start``      starts it, without pandas
"""
