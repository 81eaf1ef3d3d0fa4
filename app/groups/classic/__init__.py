"""Kafka's classic group protocol. Reading order:

- ``group``, ``owners``             a pure state machine
- ``managed_members``             members that the broker joins for and assigns to
- ``live_members``, ``rebalance``, ``answers``   waiting requests, sessions, and the end of a rebalance
- ``restarts``                    static members that come back
"""
