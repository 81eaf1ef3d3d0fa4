"""Reading as a group, without being a member: polls under leases.

- ``core``                    options, leases and what happens to a failed batch; no I/O
- ``async_group``, ``group``  polls and acknowledgements, for asyncio and for threads
"""
