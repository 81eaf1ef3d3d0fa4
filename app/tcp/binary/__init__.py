"""The binary protocol's listener (ADR-0009, ADR-0010). Reading order:

- ``request_cutter``                cuts the stream into requests
- ``connection``                    one connection: from a request to its handler, and its response
- ``dispatch``, ``handlers``        one row per message; what each request calls
"""
