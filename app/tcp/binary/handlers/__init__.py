"""Handlers of the binary protocol, one per message; they call the layers below and keep no state.

- ``context``                       the arguments and results of handlers
- ``simple``                        CONSUME and FLUSH of ADR-0009
- ``topics``, ``produce``, ``fetch``   topics, batches in, batches out (ADR-0010)
- ``groups``, ``leases``            members, offsets and claims; polls under leases
- ``tables``                        compacted topics by key, and as tables
- ``transactions``                  begin with a transactional id, commit, abort
"""
