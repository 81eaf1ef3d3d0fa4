"""The parts of Fetch, whose handler is ``handlers.fetch``. Reading order:

- ``request_memo``  recognizes requests that were decoded before
- ``requests``      what a request asks for
- ``quick_look``    the first look at the log, without a coroutine
- ``looks``, ``leader_epochs``, ``read_replicas``  checks of partitions, and the answers for them
- ``reading``       looks, reads and waits of any request: in a session, or without one
- ``idle_reading``  many partitions without a session, most of them idle
- ``old_clients``   message sets for clients that are older than the format of the log
"""
