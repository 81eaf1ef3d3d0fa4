"""What each request of the binary protocol does: calls the broker or the groups, and keeps no state.

- ``context``                       what every handler receives
- ``simple``                        CONSUME and FLUSH of ADR-0009
- ``topics``, ``produce``, ``fetch``   topics and records
- ``groups``, ``leases``            members and commits; leases on records
"""
