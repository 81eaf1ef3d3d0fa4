"""What must be true of each cut, and of what stays in the bucket."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stele.wire import record_batch as rb

from ..simulated_time import START_MS
from .bucket import BucketEvents
from .chain import CutView, Key, read_cut, segment_bytes, store_bytes
from .moments import LogAtMoment, Moment
from .tables import rows_of

CATALOG, GROUPS = "metadata.sqlite", "groups.sqlite"


# In a record.
_MARKER = re.compile(rb"<end of (t\d+)>")


def marker_of(transaction: str) -> bytes:
    return f"<end of {transaction}>".encode()


@dataclass(slots=True)
class Writer:
    """What is known of a broker that writes cuts, by its incarnation."""

    number: int
    moment: Moment | None = None
    sequences: list[int] = field(default_factory=list[int])


class Promises(BucketEvents):
    """Looks at each cut when it takes effect in the bucket, and at each deletion.

    A cut that is ``retention_ms`` old must be there. The time of the loop is the true one, cuts have that of their brokers.
    """

    def __init__(self, retention_ms: int) -> None:
        self.objects: Mapping[str, bytes] = {}
        self.cuts: dict[int, CutView] = {}
        self.writers: dict[str, Writer] = {}
        self.failure: Exception | None = None
        self.segments_checked = 0
        self._retention_ms = retention_ms

    # ── what takes effect ──

    def created(self, key: str, data: bytes) -> None:
        if not key.startswith("c/"):
            return
        self._created(int(key.removeprefix("c/")), data)

    def deleting(self, keys: Sequence[str]) -> None:
        needed = self.needed()
        lost = [key for key in keys if key in needed and key in self.objects]
        assert not lost, f"{lost} is deleted, and cut {needed[lost[0]]} within the retention needs it"

    def failed(self, error: Exception) -> None:
        self.failure = self.failure or error

    # ── the chain ──

    @property
    def newest(self) -> CutView | None:
        return self.cuts[max(self.cuts)] if self.cuts else None

    def _created(self, sequence: int, data: bytes) -> None:
        newest = self.newest
        if sequence in self.cuts:
            # Late, and deleted meanwhile; or a store that replaces.
            assert sequence not in self.needed_sequences(), f"cut {sequence} is replaced"
            return
        assert sequence == (0 if newest is None else newest.sequence + 1), f"cut {sequence} does not follow"
        cut = read_cut(data, newest)
        assert cut.sequence == sequence
        writer = self.writers[cut.header["incarnation"]]
        if newest is not None:
            self._check_succession(newest.header, cut.header)
        writer.sequences.append(sequence)
        self.cuts[sequence] = cut
        if len(writer.sequences) == 1 and newest is not None:
            # It takes the generation.
            assert cut.partitions == newest.partitions
            assert cut.stores == newest.stores
            assert cut.header["time_ms"] == newest.header["time_ms"]
            return
        moment = writer.moment
        assert moment is not None, "a cut has a moment"
        self._check_content(cut, moment)

    def _check_succession(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        assert after["cluster_id"] == before["cluster_id"]
        assert after["time_ms"] >= before["time_ms"], "the time of cuts never falls"
        is_same = after["incarnation"] == before["incarnation"]
        assert after["generation"] == before["generation"] + (not is_same), "each start has its generation"
        if not is_same:
            assert not self.writers[after["incarnation"]].sequences, "an overtaken broker writes a cut"
        elif len(self.writers[after["incarnation"]].sequences) == 1 and before["generation"] > 1:
            assert after["base"] == after["sequence"], (
                "the first cut of a start that says something is a base"
            )

    # ── what a cut says ──

    def _check_content(self, cut: CutView, moment: Moment) -> None:
        what = f"cut {cut.sequence}"
        get = self.objects.get
        stores = {name: rows_of(store_bytes(store, get)) for name, store in cut.stores.items()}
        assert stores.keys() == {CATALOG, GROUPS}, f"{what} has only {sorted(stores)}"
        # What must hold whatever the moment was.
        outcomes = stores[GROUPS]
        for key, partition in cut.partitions.items():
            end = max(
                (segment.next_offset for segment in partition.segments.values()),
                default=partition.log_start_offset,
            )
            committed = outcomes.get(f"commit {key[0]} {key[1]}", 0)
            assert committed <= end, (
                f"{what}: a group has committed {committed} of {key}, which ends at {end}"
            )
            for base, segment in partition.segments.items():
                for transaction in _MARKER.findall(segment_bytes(segment, get)):
                    assert f"outcome {transaction.decode()}" in outcomes, (
                        f"{what}: {transaction} has a marker in segment {base} of {key}, and no outcome"
                    )
        # And at that moment.
        assert cut.partitions.keys() == moment.logs.keys(), f"{what}: other partitions than there were"
        for key, log in moment.logs.items():
            self._check_log(f"{what}: {key}", cut, key, log)
        for name, rows in moment.stores.items():
            assert stores[name] == rows, f"{what}: {name} has {stores[name]}, it had {rows}"

    def _check_log(self, what: str, cut: CutView, key: Key, log: LogAtMoment) -> None:
        partition = cut.partitions[key]
        assert partition.topic == log.topic
        assert partition.log_start_offset == log.log_start_offset, f"{what} begins elsewhere"
        segments = {
            base: segment_bytes(segment, self.objects.get) for base, segment in partition.segments.items()
        }
        assert segments.keys() == log.segments.keys(), (
            f"{what} has segments {list(segments)}, there were {list(log.segments)}"
        )
        for base, data in segments.items():
            assert data == log.segments[base], f"{what}: segment {base} has other bytes"
        end, is_whole = -1, log.is_whole
        for base, data in segments.items():
            if is_whole:
                assert end in (-1, base), f"{what}: segment {base} follows offset {end}"
            end = max(end, base)
            for header in rb.iter_headers(data):
                assert header.base_offset >= end, f"{what}: offset {header.base_offset} is there twice"
                if is_whole:
                    assert header.base_offset == end, f"{what}: offsets from {end} on are missing"
                end = header.next_offset
            self.segments_checked += 1
        if is_whole:
            assert end == log.end_offset, f"{what} ends at {end}, it ended at {log.end_offset}"
        newest = max(segment.next_offset for segment in partition.segments.values())
        assert newest == log.end_offset, f"{what}: the cut says {newest}, it ended at {log.end_offset}"

    # ── what must be there ──

    def retained(self) -> list[CutView]:
        """Return the cuts to which a restore within the retention may go."""
        since = START_MS + asyncio.get_running_loop().time() * 1000 - self._retention_ms - 1
        ordered = [self.cuts[sequence] for sequence in sorted(self.cuts)]
        first = max((n for n, cut in enumerate(ordered) if cut.header["time_ms"] <= since), default=0)
        return ordered[first:]

    def needed_sequences(self) -> set[int]:
        return {sequence for cut in self.retained() for sequence in range(cut.base, cut.sequence + 1)}

    def needed(self) -> dict[str, int]:
        """Return the keys that cuts within the retention need, each with one of these cuts."""
        needed: dict[str, int] = {}
        for cut in self.retained():
            needed.update(dict.fromkeys(cut.objects(), cut.sequence))
            for sequence in range(cut.base, cut.sequence + 1):
                needed[f"c/{sequence:012d}"] = cut.sequence
        return needed

    def check_needed(self) -> None:
        """Check that all cuts within the retention can be restored."""
        missing = [key for key in self.needed() if key not in self.objects]
        assert not missing, f"{missing} are missing, which a restore within the retention needs"
        for cut in self.retained():
            for partition in cut.partitions.values():
                for segment in partition.segments.values():
                    segment_bytes(segment, self.objects.get)
            for store in cut.stores.values():
                store_bytes(store, self.objects.get)

    def strays(self, cuts: Iterable[CutView]) -> list[str]:
        """Return the objects in the bucket that no one of ``cuts`` needs."""
        needed: set[str] = set()
        for cut in cuts:
            needed |= cut.objects()
            needed |= {f"c/{sequence:012d}" for sequence in range(cut.base, cut.sequence + 1)}
        return sorted(key for key in self.objects if key not in needed and not key.startswith("check/"))
