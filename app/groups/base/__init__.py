"""What every kind of group stands on. Reading order:

- ``messages``, ``group_states``    requests and answers; the states of a group
- ``member``, ``consumer_protocol``  a member of the classic protocol; what members send each other in it
- ``topic_facts``, ``checks``       what assignments need of topics; checks of names and session timeouts
- ``group_context``, ``writer``     settings, clock, topics and the store, as groups reach them
- ``parking``, ``timers``           requests that wait; sessions
- ``offsets``, ``group_offsets``    committed offsets: rules and state
- ``pending_offsets``, ``pending_producers``   offsets that open transactions commit
- ``share_state``, ``share_counts``   stored states of records of share groups; what was done with them
"""
