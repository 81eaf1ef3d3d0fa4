"""Maps groups to shards, and shards to leases: pure functions.

Each shard has a coordinator of its own, at the broker that has its lease (ADR-0053). Migration 0004 computes the
same numbers in PostgreSQL.
"""

from __future__ import annotations

from hashlib import sha256

# A power of two of at most 256: the shard is the low bits of a byte.
SHARDS = 32


def shard_of(group: str) -> int:
    return sha256(group.encode()).digest()[0] & (SHARDS - 1)


def lease_of_shard(shard: int) -> str:
    return f"groups-{shard:02}"


def lease_of_group(group: str) -> str:
    return lease_of_shard(shard_of(group))


SHARD_LEASES = tuple(lease_of_shard(shard) for shard in range(SHARDS))
