"""Consumer groups: members, assignments and committed offsets.

Every listener serves them. Reading order:

- ``services``, ``messages``        what a listener may call; requests and answers
- ``group``, ``group_states``, ``member``   Kafka's classic group protocol, a pure state machine
- ``ownership``, ``claims``         claims of partitions by members outside the protocol
- ``consumer_protocol``, ``assignors``, ``managed_members``   members that the broker joins for and assigns to
- ``live_group``, ``live_members``, ``rebalance``, ``parking``, ``answers``, ``timers``   requests that wait, sessions
- ``consumer_messages``, ``consumer_group``, ``consumer_member``, ``consumer_assignors``, ``consumer_commits``   the
  protocol in which the broker assigns (KIP-848), a pure state machine
- ``live_consumer_group``, ``consumer_groups``   its timers and writes; what a listener may call about it
- ``classic_membership``, ``live_classic_members``   members of the classic protocol in such a group (ADR-0043)
- ``migration``, ``live_migration``   a group from one protocol to the other, with its members (ADR-0043)
- ``offsets``, ``group_offsets``, ``offset_retention``   committed offsets: rules, state, expiry
- ``pending_offsets``, ``pending_producers``, ``transactional_offsets``   offsets that open transactions commit
- ``ended_elsewhere``     the same, if transactions end at other brokers
- ``group_table``, ``group_context``, ``writer``   which groups exist; the store of their changes
- ``coordinator``, ``checks``, ``descriptions``   what a listener may call about groups
- ``group_lease``, ``shards``       which broker of a cluster serves which of them (ADR-0047, ADR-0053)
- ``lease_manager``, ``lease``, ``lease_context``, ``lease_pool``, ``lease_polls``, ``lease_positions``,
  ``lease_reads``, ``lease_settlement``, ``lease_transactions``, ``poll_member``, ``redelivery``   polls under leases, for consumers that are no members
- ``share_state``, ``share_partition``, ``durable_share_partition``   single records of a partition for share
  groups: a pure state machine, and its writes
- ``share_group``, ``live_share_group``, ``share_groups``, ``share_reads``   members of share groups (KIP-932), their
  timers; what a listener may call about them; how they read
- ``share_counts``   what share groups did with records, for the metrics
- ``dead_letters``, ``dead_letter_drain``, ``dead_letter_writer``, ``redrive``   letters about records that a share
  group has given up, and how they are redriven (KIP-1191, ADR-0049)
- ``share_queue``   single records of share groups without a session (ADR-0045)
- ``lag``                           lag, and what a reset would do
- ``offset_records``, ``replay_log``, ``offsets_view``   the records of ``__consumer_offsets``
- ``offsets_topic``, ``sharded_offsets_topic``   the topic of a broker on its own, and that of a cluster (ADR-0059)
"""
