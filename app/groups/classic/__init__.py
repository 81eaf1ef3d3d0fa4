"""Kafka's classic group protocol. Reading order:

- ``group``                         a pure state machine
- ``assignors``, ``managed_members``   members that the broker joins for and assigns to
- ``live_members``, ``rebalance``, ``answers``   requests that wait, sessions, and what ends a rebalance
"""
