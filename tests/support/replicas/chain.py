"""An independent reader of the bucket: JSON, gzip and CRCs, and no code of the broker."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import crc32c

# A topic id and the number of a partition.
Key = tuple[str, int]
# Object, position, length and CRC.
Span = tuple[str, int, int, int]


@dataclass(frozen=True, slots=True)
class SegmentView:
    """A segment, whose bytes are those of ``spans``."""

    next_offset: int
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class PartitionView:
    topic: str
    log_start_offset: int
    holes_until: int
    epochs: tuple[tuple[int, int], ...]
    # By base offset.
    segments: Mapping[int, SegmentView]


@dataclass(frozen=True, slots=True)
class StoreView:
    size: int
    chunk_bytes: int
    chunks: Mapping[int, Span]


@dataclass(slots=True)
class CutView:
    """A cut, and what it adds up to."""

    header: Mapping[str, Any]
    partitions: dict[Key, PartitionView] = field(default_factory=dict[Key, PartitionView])
    stores: dict[str, StoreView] = field(default_factory=dict[str, StoreView])

    @property
    def sequence(self) -> int:
        return self.header["sequence"]

    @property
    def base(self) -> int:
        return self.header["base"]

    def spans(self) -> list[Span]:
        logs = [
            span
            for partition in self.partitions.values()
            for segment in partition.segments.values()
            for span in segment.spans
        ]
        return [*logs, *(span for store in self.stores.values() for span in store.chunks.values())]

    def objects(self) -> set[str]:
        return {span[0] for span in self.spans()}


def read_cut(data: bytes, before: CutView | None) -> CutView:
    """Return what a cut adds up to, given the one before it."""
    lines = [json.loads(line) for line in gzip.decompress(data).splitlines()]
    header, *changes, end = lines
    assert end == {"is": "end", "lines": len(lines) - 1}, "a cut ends with its number of lines"
    cut = CutView(header)
    if header["base"] != header["sequence"]:
        assert before is not None, "a cut that is no base follows another one"
        assert header["sequence"] == before.sequence + 1
        assert header["base"] == before.base, "a cut names the newest base"
        cut.partitions, cut.stores = dict(before.partitions), dict(before.stores)
    for change in changes:
        _apply(cut, change)
    return cut


def _apply(cut: CutView, change: Mapping[str, Any]) -> None:
    match change["is"]:
        case "partition":
            key = (change["topic_id"], change["partition"])
            known = cut.partitions.get(key)
            segments = (
                {}
                if known is None
                else {
                    base: segment
                    for base, segment in known.segments.items()
                    if change["kept_from"] <= base < change["changed_from"]
                }
            )
            for base, next_offset, runs in change["segments"]:
                assert base not in segments, "a segment is named once"
                segments[base] = SegmentView(
                    next_offset, tuple((run[0], run[1], run[2], run[3]) for run in runs)
                )
            cut.partitions[key] = PartitionView(
                change["topic"],
                change["log_start_offset"],
                change["holes_until"],
                tuple((epoch, offset) for epoch, offset in change["epochs"]),
                dict(sorted(segments.items())),
            )
        case "gone":
            cut.partitions.pop((change["topic_id"], change["partition"]), None)
        case "store":
            known_store = cut.stores.get(change["name"])
            chunks: dict[int, Span] = {}
            if known_store is not None and known_store.chunk_bytes == change["chunk_bytes"]:
                chunks |= known_store.chunks
            for number, key, position, length, crc in change["chunks"]:
                chunks[number] = (key, position, length, crc)
            count = -(-change["size"] // change["chunk_bytes"])
            cut.stores[change["name"]] = StoreView(
                change["size"], change["chunk_bytes"], {number: chunks[number] for number in range(count)}
            )
        case "unused" | "deleted":
            pass
        case other:
            raise AssertionError(f"a cut has a line {other!r}")


def bytes_of(span: Span, get: Callable[[str], bytes | None]) -> bytes:
    """Return the bytes of a span. Raises ``AssertionError`` if they are not there, or others."""
    key, position, length, crc = span
    data = get(key)
    assert data is not None, f"{key} is named, and is not in the bucket"
    part = data[position : position + length]
    assert len(part) == length, f"{key} is shorter than a cut says"
    assert crc32c.crc32c(part) == crc, f"{key} has other bytes than a cut says"
    return part


def segment_bytes(segment: SegmentView, get: Callable[[str], bytes | None]) -> bytes:
    return b"".join(bytes_of(span, get) for span in segment.spans)


def store_bytes(store: StoreView, get: Callable[[str], bytes | None]) -> bytes:
    data = b"".join(bytes_of(store.chunks[number], get) for number in sorted(store.chunks))
    assert len(data) == store.size, "the chunks of a store are its file"
    return data
