"""Producers: records → batches that are stored once and in order.

- ``options``                       how a producer batches, and how long it retries
- ``lane``                          one partition's batches and their sequences; no I/O
- ``core``                          all partitions of a producer; no I/O
- ``async_producer``, ``producer``  sending, for asyncio and for threads
- ``chunks``                        batches whose sequences the caller numbers, for Spark and CDC
"""
