"""Handlers of groups. Reading order:

- ``membership``       the coordinator of a group; members of the classic protocol
- ``groups``           lists, describes and deletes groups of all protocols
- ``committed_offsets``   commits, reads and deletes offsets
- ``consumer_groups``  groups in which the broker assigns (KIP-848)
- ``share_groups``, ``share_fetch``   share groups (KIP-932)
- ``not_served``       refuses the protocol of Kafka Streams
"""
