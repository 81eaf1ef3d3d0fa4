"""Hash keys to partitions, with the two hashes that other systems use.

``murmur2`` is the hash of Apache Kafka's default partitioner (KIP-794 keeps it
for records with a key), so a key lands where a Java or librdkafka
``murmur2_random`` producer puts it. ``fnv1a_32`` is the 32-bit Fowler–Noll–Vo
1a hash (RFC 9923).
"""

from __future__ import annotations

from typing import Literal

HashName = Literal["murmur2", "fnv1a"]

_MASK = 0xFFFFFFFF
_M = 0x5BD1E995


def murmur2(data: bytes) -> int:
    """32-bit unsigned murmur2 with the seed 0x9747b28c."""
    length = len(data)
    h = 0x9747B28C ^ length
    whole = length & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * _M & _MASK
        k = (k ^ (k >> 24)) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    rest = length - whole
    if rest:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ (h >> 13)) * _M & _MASK
    return h ^ (h >> 15)


def fnv1a_32(data: bytes) -> int:
    """32-bit unsigned FNV-1a."""
    h = 0x811C9DC5
    for byte in data:
        h = (h ^ byte) * 0x01000193 & _MASK
    return h


def partition_for_key(key: bytes, partitions: int, *, hash_name: HashName = "murmur2") -> int:
    """Return the partition of ``key``, in ``range(partitions)``."""
    if hash_name == "murmur2":
        return (murmur2(key) & 0x7FFFFFFF) % partitions
    return fnv1a_32(key) % partitions
