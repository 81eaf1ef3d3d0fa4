"""The binary protocol's listener (ADR-0009, ADR-0010). Reading order:

- ``request_cutter``                cuts the stream into requests
- ``login``                         AUTHENTICATE, and which requests may begin before it (ADR-0033)
- ``connection``                    one connection: from a request to its handler, and its response
- ``guards``                        required rights per message
- ``dispatch``, ``handlers``        one row per message; its handler
- ``forwarding``                    requests for groups that another broker of the cluster coordinates
"""
