"""Polls under leases, for consumers that are no members. Reading order:

- ``lease``, ``lease_pool``         partitions that a poll holds until a time; all leases of a group
- ``lease_context``, ``poll_member``   what polls share; the member that stands for them in the group
- ``lease_polls``, ``lease_reads``, ``lease_positions``   a poll, what it reads, and from where
- ``lease_settlement``, ``lease_transactions``, ``redelivery``   acknowledgements, also in transactions; what comes again
- ``lease_manager``                 what a listener may call
"""
