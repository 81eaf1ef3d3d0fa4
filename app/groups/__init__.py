"""Consumer groups: who reads what, and how far. Kafka's classic group protocol, for every listener.

In reading order:

- ``group`` with ``group_states`` and ``member`` (one group, a pure state machine),
  ``ownership`` (the rules of claims), ``assignors`` and ``consumer_protocol``;
- ``messages`` (requests and answers);
- ``live_group`` (joins, syncs and leaves) with ``live_members`` (parked requests and
  sessions), ``rebalance``, ``managed_members`` (members that the broker joins for),
  ``claims``, ``parking``, ``answers`` and ``timers``;
- ``offsets`` (the rules of a committed offset), ``group_offsets`` (those of one group)
  and ``offset_retention``;
- ``group_table`` (which groups exist, and the store) with ``writer``; ``group_context``
  is what groups need of it;
- ``coordinator`` (all that a listener may call about groups);
- ``lease_manager`` (all that a listener may call about leases) with ``lease_pool``,
  ``lease_polls``, ``lease_settlement``, ``redelivery`` and their helpers; ``lease`` has
  the token;
- ``lag`` (lag and resets), ``offsets_topic`` (``__consumer_offsets``) with
  ``offset_records`` and ``replay_log``.
"""
