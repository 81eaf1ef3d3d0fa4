"""Kafka's classic group protocol. Reading order:

- ``group``                         a pure state machine
- ``assignors``, ``managed_members``   members that the broker joins for and assigns to
- ``live_members``, ``rebalance``, ``answers``   waiting requests, sessions, and the end of a rebalance
"""
