"""Sessions of clients, as state machines without I/O.

- ``fetch_sessions``   fetch sessions (KIP-227)
- ``share_sessions``   sessions of members of share groups (KIP-932)
"""
