"""The metadata in PostgreSQL. Reading order:

- ``postgres_runs``    shared parts of the SQL about runs
- ``postgres_commit``  a commit, in two trips
- ``postgres_markers``  the markers of transactions that end
- ``postgres_cleaning``  the calls of compaction and of reads by key
- ``postgres_polls``   repeated queries about very many logs
- ``postgres_meta``    all other calls
- ``postgres_inline``  small objects in PostgreSQL
"""
