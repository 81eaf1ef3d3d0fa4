"""What exists: the catalog of topics, users, ids, and the store of groups.

Ids are never assigned twice. Reading order:

- ``catalog``, ``group_store``, ``consumer_group_store``, ``share_group_store``, ``transaction_store``, ``credentials``, ``acls``   the interfaces
- ``sqlite``, ``sqlite_groups``, ``sqlite_consumer_groups``, ``sqlite_share_groups``, ``sqlite_pending_offsets``, ``sqlite_transactions``,
  ``sqlite_credentials``, ``sqlite_acls``   all on this machine (ADR-0008, ADR-0012, ADR-0029)
"""
