"""Sessions of clients, as state machines without I/O.

- ``fetch_sessions``   fetch sessions (KIP-227)
- ``idle_answers``     cached answers for the idle partitions of a connection without a fetch session
- ``share_sessions``   sessions of members of share groups (KIP-932)
"""
