"""The catalog of topics, users, ids and brokers, and the store of groups.

Ids are never assigned twice. Reading order:

- ``database``                  the dialect: one set of statements for SQLite and PostgreSQL
- ``catalog``, ``credentials``, ``acls``   topics, ids and configurations; users; access rules
- ``group_store``, ``consumer_group_store``, ``share_group_store``, ``transaction_store``   the interface of the store of groups
- ``group_tables``, ``group_documents``, ``transaction_rows``   its statements; groups as JSON
- ``sqlite``                    all on this machine
- ``shared_transactions``       transactional ids that belong to no broker (ADR-0055)
- ``postgres``                  the stores of a cluster
- ``membership``, ``leaders``, ``group_shards``   live brokers and leases; which broker clients are sent to; shards of groups
- ``survey``                    brokers, objects and backlogs, for operators
"""
