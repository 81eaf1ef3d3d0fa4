"""Consumers, which read a topic from a position that they keep themselves.

- ``core``                          options, positions, buffer, outages; no I/O
- ``async_fetching``, ``fetching``  fetches ahead in tasks; fetches in the thread of the consumer
- ``async_consumer``, ``consumer``  the consumers for asyncio and for threads
"""
