"""The catalog of topics, users, ids and brokers, and the store of groups.

Ids are never assigned twice. Reading order:

- ``catalog``, ``group_store``, ``consumer_group_store``, ``share_group_store``, ``transaction_store``, ``credentials``, ``acls``   the interfaces
- ``sqlite``                    all on this machine
- ``shared_transactions``       transactional ids that belong to no broker (ADR-0055)
- ``postgres``                  the stores of a cluster
- ``membership``, ``leaders``, ``group_shards``   live brokers and leases; which broker clients are sent to; shards of groups
- ``survey``                    brokers, objects and backlogs, for operators
"""
