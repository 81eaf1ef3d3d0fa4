"""The catalog and the store of groups on this machine (ADR-0008, ADR-0012, ADR-0029). Reading order:

- ``file``             a SQLite file, and its classified errors (ADR-0068)
- ``catalog``          the file of topics, ids, configurations, users and access rules
- ``group_migrations`` the schema of the file of groups
- ``groups``, ``transactions``   groups; transactional ids in the same file
- ``restored``         both files after a restore from a replica
"""
