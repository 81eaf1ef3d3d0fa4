"""Share groups (KIP-932). Reading order:

- ``share_partition``, ``durable_share_partition``   single records of a partition: a pure state machine, and its writes
- ``share_group``, ``live_share_group``   members, and their timers
- ``share_reads``                   how they read
- ``dead_letters``, ``dead_letter_drain``, ``dead_letter_writer``   letters about records that a group has given up
  (KIP-1191, ADR-0049)
"""
