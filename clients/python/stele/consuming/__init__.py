"""Consumers: records from a position that the consumer keeps itself.

- ``core``                          options, positions, buffer and outages; no I/O
- ``async_consumer``, ``consumer``  fetching, for asyncio and for threads
"""
