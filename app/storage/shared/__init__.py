"""The shared engine: brokers that hold nothing (ADR-0040). Reading order:

- ``meta``             the interface of the metadata: which bytes of which object have which offsets
- ``commit_rules``     decisions of a commit: offsets, duplicates, refusals
- ``upkeep_rules``     decisions of retention and merging
- ``cleaning_rules``   decisions of compaction: the log, its range, and groups of runs
- ``postgres``         the metadata in PostgreSQL
- ``store``            object stores
- ``runs``             the format of objects, and the runs of batches in them
- ``reader``           reads by offset and by time
- ``log``              one broker's view of a log
- ``refused_batches``  failed batches that must not be overtaken
- ``write_buffer``, ``committer``   from appends to objects to acknowledgements
- ``histories``        another history of the metadata, which may know less
- ``log_ends``         follows appends of other brokers
- ``cleaning_work``, ``compactor``   passes of compaction
- ``key_reader``       the newest record of a key, and those of all keys
- ``upkeep``           retention, merging, garbage collection
- ``options``          sizes and times
- ``engine``           the engine, above all of it
- ``store_identity``   whether all brokers have the same object store
- ``postgres_engine``  the engine over PostgreSQL and the object store that the settings name
"""
