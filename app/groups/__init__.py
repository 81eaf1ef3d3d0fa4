"""Consumer groups: members, assignments and committed offsets, for every listener. Reading order:

- ``services``, ``messages``        what a listener may call; requests and answers
- ``group``                         Kafka's classic group protocol, a pure state machine
- ``live_group``, ``parking``, ``answers``, ``timers``   joins and syncs that wait, their answers and time limits
- ``coordinator``, ``group_context``, ``checks``, ``descriptions``   all groups; what a group needs of them
- ``consumer_protocol``, ``assignors``, ``managed_members``   members that the broker joins for and assigns to
- ``offsets``, ``group_offsets``, ``offset_retention``   committed offsets: rules, state, expiry
- ``writer``                        changes of several groups in one transaction of the store
- ``lease``, ``lease_manager``      polls under leases, for consumers that are no members
- ``lag``                           lag, and what a reset would do
- ``offset_records``, ``replay_log``, ``offsets_topic``   ``__consumer_offsets`` as a read-only topic
"""
