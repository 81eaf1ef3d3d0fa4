"""What the tests of this suite share: names, waits, records."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from tests.conformance.driver import Driver, Headers, Place, Record

StartDriver = Callable[[], Driver]
# With the address of the broker and a login file.
StartLocked = Callable[[str, Path], Driver]


class MakeTopic(Protocol):
    def __call__(self, partitions: int = 1, configs: dict[str, str] | None = None) -> str: ...


def a_name(kind: str) -> str:
    """One that no other test has."""
    return f"{kind}-{uuid.uuid4().hex[:12]}"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def numbered(count: int, *, partitions: int = 1, start: int = 0) -> list[Record]:
    """Records that tell where they belong, dealt out to the partitions in turn."""
    return [
        Record(value=f"value {n}".encode(), key=f"key {n}".encode(), partition=n % partitions)
        for n in range(start, start + count)
    ]


def all_kinds(driver: Driver) -> list[Record]:
    """One record of each kind that its client can write: keys, tombstones, headers, bytes that are no text.

    Without commas, line ends and zero bytes in headers: kcat prints those so that they cannot be told apart.
    """
    repeated: Headers = (("lang", b"grc"), ("lang", b"egy"), ("bytes", b"\xff\xfe"), ("empty", b""))
    records = [
        Record(key=b"key", value="ключ".encode()),
        Record(key=None, value=b"without a key"),
        Record(key=b"key", value=None),
        Record(key=b"\x80\x00\xff", value=b"\xff\x00\xfe\n"),
        Record(key=b"key", value=b""),
        Record(key=b"key", value=b"with headers", headers=repeated),
    ]
    if driver.offers("null header values"):
        records.append(Record(key=b"key", value=b"v", headers=(("null", None), ("after", b"1"))))
    if driver.offers("setting timestamps"):
        stamp = now_ms() - 3_600_000
        records = [
            Record(key=r.key, value=r.value, headers=r.headers, timestamp=stamp + n)
            for n, r in enumerate(records)
        ]
    return records


def contents(records: Iterable[Record]) -> list[tuple[bytes | None, bytes | None, Headers]]:
    return [record.content for record in records]


def offsets(records: Iterable[Record]) -> list[int]:
    return [record.offset for record in records]


def places_of(topic: str, partitions: int) -> set[Place]:
    return {(topic, partition) for partition in range(partitions)}
