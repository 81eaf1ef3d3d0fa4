"""Consumer groups: members, assignments and committed offsets.

Every listener serves them. Reading order:

- ``services``                      the interface for listeners
- ``base``                          shared parts of all kinds of groups
- ``classic``, ``consumer``, ``share``   the three protocols: pure state machines, their timers and writes
- ``live_group``, ``table``         a group of any protocol; which groups exist, and the store of their changes
- ``coordinator``, ``descriptions``   the facade of groups, and their descriptions
- ``consumer_groups``, ``share_groups``   and about those of one protocol
- ``share_queue``, ``redrive``      single records of share groups without a session (ADR-0045); dead letters again
- ``transactional_offsets``, ``ended_elsewhere``   offsets of transactions, including those that end at other brokers
- ``offset_retention``, ``lag``     expiry of offsets; lag and resets
- ``topic_changes``                 tells groups of topics that were created, deleted or grown
- ``leases``                        polls under leases, for consumers that are no members
- ``shard_lease``, ``shards``       which broker of a cluster serves which groups (ADR-0047, ADR-0053)
- ``offsets_topic``                 the topic ``__consumer_offsets``
"""
