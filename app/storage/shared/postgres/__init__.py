"""The metadata in PostgreSQL. Reading order:

- ``runs``             shared parts of the SQL about runs
- ``commit``           a commit, in two trips
- ``markers``           the markers of transactions that end
- ``cleaning``           the calls of compaction and of reads by key
- ``polls``            repeated queries about very many logs
- ``meta``             all other calls
- ``inline_objects``   small objects in PostgreSQL
"""
