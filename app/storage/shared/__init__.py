"""The shared engine: brokers that hold nothing (ADR-0040). Reading order:

- ``objects``          the interface of the object store
- ``meta``             the interface of the metadata: which bytes of which object have which offsets
- ``commit_rules``     what a commit decides: offsets, duplicates, refusals
- ``upkeep_rules``     what retention and merging decide
- ``cleaning_rules``   what compaction decides: which log, up to where, which runs together
- ``postgres_runs``    what all SQL about runs shares
- ``postgres_commit``  a commit in PostgreSQL, in two trips
- ``postgres_markers``  the markers of transactions that end
- ``postgres_cleaning``  the calls of compaction and of reads by key
- ``postgres_meta``    all other calls
- ``postgres_inline``  small objects in PostgreSQL
- ``object_stores``    S3, and directories for tests
- ``object_format``, ``object_keys``   what is in an object, and its name
- ``shared_log``       what one broker knows of a log
- ``refused_batches``  what failed, and must not be overtaken
- ``write_buffer``, ``committer``   from appends to objects to acknowledgements
- ``sparse_index``, ``run_batches``   batches out of the bytes of a run
- ``block_cache``, ``reader``   reads by offset and by time
- ``log_ends``         what other brokers appended
- ``run_builder``, ``merged_objects``   objects that replace runs
- ``cleaning_work``, ``compactor``   passes of compaction
- ``table_offsets``, ``shared_keys``   the newest record of a key, and those of all keys
- ``upkeep``           retention, merging, garbage collection
- ``options``          sizes and times
- ``engine``           the engine, above all of it
- ``store_check``      a start that can say what is wrong with the object store
- ``postgres_engine``  the engine over PostgreSQL and the object store that the settings name
"""
