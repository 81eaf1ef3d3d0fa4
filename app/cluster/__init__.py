"""What exists: the catalog of topics, ids that are never given twice, and the store of groups. Reading order:

- ``catalog``, ``group_store``      the two interfaces
- ``sqlite``, ``sqlite_groups``     both on this machine (ADR-0008, ADR-0012)
"""
