"""Reading as a group, without being a member: polls under leases (``core``), for asyncio and for threads."""
