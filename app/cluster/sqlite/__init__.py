"""The catalog and the store of groups on this machine (ADR-0008, ADR-0012, ADR-0029). Reading order:

- ``file``             a SQLite file, and its classified errors (ADR-0068)
- ``catalog``          the file of topics, ids, configurations, users and access rules
- ``groups``           groups, of these parts: ``consumer_groups``, ``share_groups``, ``pending_offsets``, ``transactions``
"""
