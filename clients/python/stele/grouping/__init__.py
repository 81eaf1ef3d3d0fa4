"""Groups that read under leases, without being members.

- ``core``                    options, leases and failed batches; no I/O
- ``async_group``, ``group``  the groups for asyncio and for threads
"""
