"""Share groups (KIP-932). Reading order:

- ``partition``, ``durable_partition``   single records of a partition: a pure state machine, and its writes
- ``group``, ``live_group``         members, and their timers
- ``reads``                         how they read
- ``dead_letters``, ``dead_letter_drain``, ``dead_letter_writer``   letters about records that a group has given up
  (KIP-1191, ADR-0049)
"""
