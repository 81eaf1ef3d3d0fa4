"""Polls under leases, for consumers that are no members. Reading order:

- ``lease``, ``pool``               partitions that a poll holds until a time; all leases of a group
- ``context``, ``poll_member``      shared state of polls; their member in the group
- ``polls``, ``reads``, ``positions``   a poll, its reads and its positions
- ``settlement``, ``transactions``, ``redelivery``   acknowledgements, also in transactions; redelivery
- ``manager``                       the interface for listeners
"""
