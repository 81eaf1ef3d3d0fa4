"""Shared parts of all kinds of groups. Reading order:

- ``messages``, ``states``          requests and answers; the states of a group
- ``member``, ``consumer_protocol``  a member of the classic protocol; the data that its members exchange
- ``topic_facts``, ``checks``       facts about topics for assignments; checks of names and session timeouts
- ``context``, ``writer``           settings, clock, topics and the store, as groups reach them
- ``parking``, ``timers``           requests that wait; sessions
- ``tally``, ``client_ids``, ``assignors``   counts of what members have in common; members by client; partitions to members
- ``offset_rules``, ``committed_offsets``   committed offsets: rules and state
- ``pending_offsets``, ``pending_producers``   offsets that open transactions commit
- ``share_state``                   stored states of records of share groups; counts of them
"""
