"""Producers, which store records in batches, exactly once and in order.

- ``options``                       batching, timeouts and retries of a producer
- ``lane``                          batches and sequences of one partition; no I/O
- ``core``                          all partitions of a producer; no I/O
- ``async_sending``, ``sending``    records on their way: in a task per batch, by a thread
- ``async_producer``, ``producer``  the producers for asyncio and for threads
- ``chunks``                        batches whose sequences the caller numbers, for Spark and CDC
- ``last_record``                   the last committed record of a topic that keeps a writer's progress
"""
