"""The protocol in which the broker assigns (KIP-848). Reading order:

- ``messages``, ``group``, ``member_index``, ``targets``, ``reconciliation``   a pure state machine
- ``live_group``, ``commits``       its timers and writes; checks of commits
- ``classic_membership``, ``live_classic_members``   members of the classic protocol in such a group (ADR-0043)
- ``migration``, ``live_migration``   a group from one protocol to the other, with its members (ADR-0043)
- ``ownership``, ``claims``         claims of partitions by members outside the protocol, in a group of either
"""
