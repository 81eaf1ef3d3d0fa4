"""Groups that read without being members.

Under leases, and single records of share groups.

- ``core``                    options, leases and failed batches; no I/O
- ``async_group``, ``group``  the groups for asyncio and for threads
- ``queue_core``              options of queues, and the records that they hold; no I/O
- ``async_queue``, ``queue``  the queues for asyncio and for threads
"""
