"""Transactions over HTTP: records and settled leases become visible together.

- ``core``                                what both halves decide; no I/O
- ``async_transaction``, ``transaction``  the transactions for asyncio and for threads
"""
