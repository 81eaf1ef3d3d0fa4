"""Polls under leases, for consumers that are no members. Reading order:

- ``lease``, ``lease_pool``         partitions that a poll holds until a time; all leases of a group
- ``lease_context``, ``poll_member``   shared state of polls; their member in the group
- ``lease_polls``, ``lease_reads``, ``lease_positions``   a poll, its reads and its positions
- ``lease_settlement``, ``lease_transactions``, ``redelivery``   acknowledgements, also in transactions; redelivery
- ``lease_manager``                 the interface for listeners
"""
