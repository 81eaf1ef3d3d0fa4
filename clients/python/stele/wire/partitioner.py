"""Hash keys to partitions, with the two hashes that other systems use.

``murmur2`` is the hash of Apache Kafka's default partitioner (KIP-794 keeps it
for records with a key), so a key lands where a Java or librdkafka
``murmur2_random`` producer puts it. ``fnv1a_32`` is the 32-bit Fowler–Noll–Vo
1a hash (RFC 9923).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

HashName = Literal["murmur2", "fnv1a"]

_MASK = 0xFFFFFFFF
_M = 0x5BD1E995
_FNV_BEGIN = 0x811C9DC5
_FNV_PRIME = 0x01000193


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
    h = _FNV_BEGIN
    for byte in data:
        h = (h ^ byte) * _FNV_PRIME & _MASK
    return h


def fnv1a_32_all(keys: Sequence[bytes]) -> tuple[int, ...]:
    """Return the ``fnv1a_32`` of many keys, of which none is long.

    Each has 64 bits of one large integer, so that a step of all hashes is one multiplication.
    """
    count, longest = len(keys), max(map(len, keys))
    layout = struct.Struct(f"<{count}Q")
    begins = _fnv_begins(longest)
    hashes = int.from_bytes(layout.pack(*[begins[len(key)] for key in keys]), "little")
    mask = int.from_bytes(b"\xff\xff\xff\xff\0\0\0\0" * count, "little")
    filled = b"".join([key.rjust(longest, b"\0") for key in keys])
    step = bytearray(8 * count)
    for position in range(longest):
        step[::8] = filled[position::longest]
        hashes = (hashes ^ int.from_bytes(step, "little")) * _FNV_PRIME & mask
    return layout.unpack(hashes.to_bytes(8 * count, "little"))


@lru_cache(maxsize=64)
def _fnv_begins(longest: int) -> list[int]:
    """Return what hashes begin with, by the length of a key that zeros before it make the ``longest``.

    A zero multiplies by the prime, so the inverse of the prime makes up for it.
    """
    return [
        _FNV_BEGIN * pow(_FNV_PRIME, length - longest, _MASK + 1) & _MASK for length in range(longest + 1)
    ]


def partition_for_key(key: bytes, partitions: int, *, hash_name: HashName = "murmur2") -> int:
    """Return the partition of ``key``, in ``range(partitions)``."""
    if hash_name == "murmur2":
        return (murmur2(key) & 0x7FFFFFFF) % partitions
    return fnv1a_32(key) % partitions
