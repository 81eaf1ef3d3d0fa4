"""The catalog and the store of groups on this machine (ADR-0008, ADR-0012, ADR-0029). Reading order:

- ``schemas``          the tables of both files
- ``file``             a SQLite file, and its classified errors (ADR-0068)
- ``catalog``          the file of topics, ids, configurations, users and access rules
- ``groups``, ``transactions``   groups; transactional ids in the same file
"""
