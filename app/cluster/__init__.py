"""The catalog of topics, users, ids and brokers, and the store of groups.

Ids are never assigned twice. Reading order:

- ``catalog``, ``group_store``, ``consumer_group_store``, ``share_group_store``, ``transaction_store``, ``credentials``, ``acls``   the interfaces
- ``sqlite_file``               a SQLite file, and its classified errors (ADR-0068)
- ``sqlite``, ``sqlite_groups``, ``sqlite_consumer_groups``, ``sqlite_share_groups``, ``sqlite_pending_offsets``, ``sqlite_transactions``,
  ``sqlite_credentials``, ``sqlite_acls``   all on this machine (ADR-0008, ADR-0012, ADR-0029)
- ``membership``, ``leaders``, ``group_shards``   live brokers and leases; which broker clients are sent to; shards of groups
- ``shared_transactions``, ``postgres_transactions``   transactional ids that belong to no broker (ADR-0055)
- ``survey``                    brokers, objects and backlogs, for operators
- ``postgres``, ``postgres_acls``, ``postgres_credentials``, ``postgres_membership``, ``postgres_survey``, ``postgres_groups``,
  ``postgres_group_deletions``, ``postgres_pending_offsets``, ``postgres_consumer_groups``, ``postgres_share_groups``, ``postgres_import``   the stores of a cluster (ADR-0046, ADR-0047)
"""
