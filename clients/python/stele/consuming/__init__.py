"""Consumers, which read a topic from a position that they keep themselves.

- ``core``                          options, positions, buffer, outages; no I/O
- ``async_consumer``, ``consumer``  the consumers for asyncio and for threads
"""
