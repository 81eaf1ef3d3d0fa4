"""Transactions: records and settled leases that become visible together, over HTTP.

- ``core``                                what both halves decide; no I/O
- ``async_transaction``, ``transaction``  the transactions for asyncio and for threads
"""
