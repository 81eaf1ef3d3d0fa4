"""One handler per message of the binary protocol: it calls the broker or the groups and keeps nothing.

- ``context``                       what a handler is given and may return
- ``simple``                        CONSUME and FLUSH of ADR-0009
- ``topics``, ``produce``, ``fetch``   topics, batches in, batches out (ADR-0010)
- ``groups``, ``leases``            members, offsets and claims; polls under leases
"""
