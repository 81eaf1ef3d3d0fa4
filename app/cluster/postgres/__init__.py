"""The stores of a cluster (ADR-0046, ADR-0047). Reading order:

- ``database``         PostgreSQL as the database of ``app.cluster``'s stores
- ``catalog``          topics, ids and configurations
- ``membership``, ``survey``   live brokers and leases; brokers, objects and backlogs, for operators
- ``groups``           groups; ``pending_offsets`` and ``group_deletions`` are what only several brokers need
- ``transactions``     transactional ids that belong to no broker (ADR-0055)
- ``sqlite_import``    takes over what a broker on its own had
"""
