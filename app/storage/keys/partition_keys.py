"""The key indexes of one partition: opened, built, looked up and merged; for threads.

=====================================  =========================================
a segment is                           its keys are found in
=====================================  =========================================
sealed and synced                      its key index, which is built when it is missing
active, or not synced yet              memory (``SegmentKeys``)
so, and has more keys than may be held its log, which is read for each look-up
known to have corrupt ranges           its log
=====================================  =========================================
"""

from __future__ import annotations

import heapq
import logging
import os
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from ...errors import CorruptLog
from ..cleaning.transactions import NOTHING_ABORTED, AbortedBatches
from ..config_types import INT64_MAX
from ..disk.files import DISK_FULL
from ..disk.pace import Pacing
from ..segments.reader import headers
from ..segments.segment import Segment
from .growing_keys import Share
from .key_index import (
    ENTRY_BYTES,
    HASH_BYTES,
    SALT_BYTES,
    KeyHasher,
    KeyIndex,
    SortedEntries,
    open_key_index,
    salt_of,
    write_key_index,
)
from .key_scan import SegmentPart, newest_in
from .newest_offsets import OFFSET_BYTES, NewestOffsets, sorted_offsets
from .segment_keys import SegmentKeys
from .table_scan import newest_offsets_of, too_many_keys

logger = logging.getLogger(__name__)

# Shares of the keys of one segment, in which its index is built if they do not fit into the memory at once.
_SHARES_MAX = 256
# Entries that are read at once of each index that is merged.
_BLOCK = 1024
# After all entries.
_LAST = b"\xff" * (ENTRY_BYTES + 1)


@dataclass(frozen=True, slots=True)
class PartitionPart:
    """The segments of a partition at some moment, in order, and the offset of the first record.

    Those in ``final`` are sealed and synced, and no transaction is open in them: what they hold will
    never change. Batches at or after ``stable_offset`` may belong to open transactions. ``aborted_search``,
    for threads, finds the aborted ones before an offset; None if there are none.
    """

    parts: list[SegmentPart]
    final: frozenset[Segment]
    start: int
    stable_offset: int = INT64_MAX
    aborted_search: Callable[[int], AbortedBatches] | None = None

    def stable(self) -> PartitionPart:
        """Return the part before ``stable_offset``, for threads.

        Its aborted transactions are known.

        Raises ``CorruptLog``, ``OSError``.
        """
        search = self.aborted_search
        aborted = NOTHING_ABORTED if search is None else search(self.stable_offset)
        parts = [replace(part.before(self.stable_offset), aborted=aborted) for part in self.parts]
        return replace(self, parts=parts)


class _TooManyKeys(Exception):
    """The keys do not fit into the memory even in that many shares."""


class PartitionKeys:
    """Belongs to one thread. ``close`` returns memory and files."""

    def __init__(self, *, memory_bytes: int, may_build: bool = True) -> None:
        """Only one for each partition ``may_build`` key indexes; others use them."""
        self._memory_bytes = memory_bytes
        self._may_build = may_build
        self.hasher: KeyHasher | None = None
        self._indexes: dict[Segment, KeyIndex] = {}
        self._held: dict[Segment, SegmentKeys] = {}
        # Segments with more keys than may be held in memory.
        self._too_large: set[Segment] = set()

    @property
    def open_files(self) -> int:
        return len(self._indexes)

    @property
    def size_bytes(self) -> int:
        """The memory of the keys that are held."""
        return sum(keys.size_bytes for keys in self._held.values())

    def close(self) -> None:
        """Give back everything; it is opened and read again when it is needed."""
        for index in self._indexes.values():
            index.close()
        for keys in self._held.values():
            keys.close()
        self._indexes, self._held = {}, {}
        self._too_large.clear()

    def distrust(self, whole: PartitionPart) -> None:
        """Remove the key indexes: one of them gave a wrong answer."""
        self.close()
        for part in whole.parts:
            part.segment.has_key_index = False
            path = part.segment.key_index_path
            if not part.segment.is_pinned and part.segment.files.exists(path):
                logger.warning("%s does not fit its log and is built again", path)
                with suppress(FileNotFoundError):
                    # Retired with its segment meanwhile.
                    part.segment.files.remove(path)

    # ── one key ──

    def newest_offset(self, whole: PartitionPart, key: bytes, pace: Pacing) -> int:
        """Return the offset of the newest record of ``key``; -1 if there is none.

        Raises:
            CorruptLog: it may be in a corrupt range.
            OSError: a log cannot be read.
        """
        self._keep_only(whole)
        wanted = self._hasher_of(whole).hash_of(key)
        for part in reversed(whole.parts):
            found = self._find(whole, part, key, wanted, pace)
            for damage in part.segment.corrupt_ranges:
                if damage.next_offset > max(found, whole.start - 1) and damage.position < part.log_bytes:
                    raise part.segment.corrupt(damage)
            if found >= 0:
                return found if found >= whole.start else -1
        return -1

    def _find(self, whole: PartitionPart, part: SegmentPart, key: bytes, wanted: bytes, pace: Pacing) -> int:
        if part.segment in whole.final:
            index = self._index_of(part, pace)
            if index is not None:
                return index.find(wanted)
        else:
            keys = self._keys_of(part, pace)
            if keys is not None:
                return keys.find(wanted)
        return newest_in(part, key, pace)

    def _keep_only(self, whole: PartitionPart) -> None:
        """Let go of segments that were deleted or replaced."""
        live = {part.segment for part in whole.parts}
        for segment in self._indexes.keys() - live:
            self._indexes.pop(segment).close()
        for segment in self._held.keys() - live:
            self._held.pop(segment).close()
        self._too_large &= live

    def _hasher_of(self, whole: PartitionPart) -> KeyHasher:
        if self.hasher is None:
            salts = (
                salt_of(part.segment.files, part.segment.key_index_path)
                for part in whole.parts
                if part.segment in whole.final
            )
            salt = next((salt for salt in salts if salt is not None), None)
            self.hasher = KeyHasher(os.urandom(SALT_BYTES) if salt is None else salt)
        return self.hasher

    # ── the keys of one segment ──

    def _keys_of(self, part: SegmentPart, pace: Pacing) -> SegmentKeys | None:
        """Return what is held of a segment that may still grow; None if it cannot be held."""
        segment = part.segment
        if segment in self._too_large or segment.corrupt_ranges:
            return None
        assert self.hasher is not None
        keys = self._held.pop(segment, None) or SegmentKeys(self.hasher, memory_bytes=self._memory_bytes)
        is_whole = False
        try:
            is_whole = keys.catch_up(part, pace)
            if not is_whole:
                self._too_large.add(segment)
        except CorruptLog:
            # Known from now on; the log is read around it.
            pass
        finally:
            if is_whole:
                self._held[segment] = keys
            else:
                keys.close()
        return keys if is_whole else None

    def _index_of(self, part: SegmentPart, pace: Pacing) -> KeyIndex | None:
        """Return the index of a final segment; None if there is none and none can be built."""
        segment = part.segment
        index = self._indexes.get(segment)
        if index is not None:
            return index
        if segment.is_pinned or segment.corrupt_ranges:
            return None
        index = self._open(part, pace)
        if index is None and self._may_build and self._build(part, pace):
            index = self._open(part, pace)
        if index is not None:
            segment.has_key_index = True
            self._indexes[segment] = index
            held = self._held.pop(segment, None)
            if held is not None:
                held.close()
        return index

    def _open(self, part: SegmentPart, pace: Pacing) -> KeyIndex | None:
        assert self.hasher is not None
        segment = part.segment
        return open_key_index(
            segment.files,
            segment.key_index_path,
            log_bytes=part.log_bytes,
            next_offset=part.next_offset,
            salt=self.hasher.salt,
            pace=pace,
            is_checked=segment.has_key_index,
        )

    def _build(self, part: SegmentPart, pace: Pacing) -> bool:
        """Write the index of a final segment; False if that is not possible now."""
        assert self.hasher is not None
        shares = 1
        while shares <= _SHARES_MAX:
            try:
                write_key_index(
                    part.segment.files,
                    part.segment.key_index_path,
                    self._entries(part, shares, pace),
                    salt=self.hasher.salt,
                    log_bytes=part.log_bytes,
                    next_offset=part.next_offset,
                    pace=pace,
                )
            except _TooManyKeys:
                shares *= 4
            except CorruptLog:
                # Known from now on; the log is read around it.
                return False
            except OSError as error:
                if error.errno not in DISK_FULL:
                    raise
                return False
            else:
                return True
        return False

    def _entries(self, part: SegmentPart, shares: int, pace: Pacing) -> Iterator[bytes]:
        assert self.hasher is not None
        held = self._held.get(part.segment)
        if held is not None and held.catch_up(part, pace):
            # It was the active segment until now.
            yield from held.sorted_entries(pace)
            return
        for number in range(shares):
            # Half of the memory: the entries are there twice while they are sorted.
            keys = SegmentKeys(self.hasher, memory_bytes=self._memory_bytes // 2, share=Share(number, shares))
            try:
                if not keys.catch_up(part, pace):
                    raise _TooManyKeys
                yield from keys.sorted_entries(pace)
            finally:
                keys.close()

    # ── all keys ──

    def prepare(self, whole: PartitionPart, pace: Pacing, *, start: int = 0) -> None:
        """Build the indexes that are missing of segments that begin at ``start`` or later, newest first."""
        self._keep_only(whole)
        self._hasher_of(whole)
        for part in reversed(whole.parts):
            if part.segment in whole.final and part.segment.base_offset >= start:
                self._index_of(part, pace)

    def newest_offsets(
        self, whole: PartitionPart, end: int, pace: Pacing, *, start: int = 0
    ) -> NewestOffsets:
        """Return the offsets from ``start`` to before ``end`` of the newest records of their keys.

        Later records do not count. Earlier ones are not read, so that takes less time than all of it.

        Raises:
            InvalidRequest: there are more keys than the memory allows.
            OSError: a log cannot be read.
        """
        self._keep_only(whole)
        hasher = self._hasher_of(whole)
        first = max(whole.start, start)
        parts = [part for part in whole.parts if part.next_offset > start]
        layers: list[KeyIndex | SortedEntries] = []
        for part in reversed(parts):
            index = None
            if part.segment in whole.final and start <= part.segment.base_offset and part.next_offset <= end:
                index = self._index_of(part, pace)
            layer = index or self._entries_between(part, hasher, start, end, pace)
            if layer is None:
                return newest_offsets_of(
                    parts, hasher, start=first, end=end, memory_bytes=self._memory_bytes, pace=pace
                )
            layers.append(layer)
        offsets = _merged(layers, first, self._memory_bytes, pace)
        return NewestOffsets(
            sorted_offsets(offsets, start=first, end=end, count=len(offsets), pace=pace),
            start_offset=first,
            end_offset=end,
        )

    def _entries_between(
        self, part: SegmentPart, hasher: KeyHasher, start: int, end: int, pace: Pacing
    ) -> SortedEntries | None:
        """The keys of a segment from ``start`` to before ``end``, without its index; None if they cannot be held."""
        if part.segment.corrupt_ranges:
            return None
        is_cut = part.segment.base_offset < start
        held = None if is_cut else self._held.get(part.segment)
        if not is_cut and part.next_offset <= end and (held is None or held.next_offset <= end):
            held = self._keys_of(part, pace)
            return None if held is None else SortedEntries(b"".join(held.sorted_entries(pace)))
        keys = None
        try:
            # A batch before the start, but not far.
            first = next(headers(part.segment, from_offset=start), None) if is_cut else None
            position = 0 if first is None else first.position
            keys = SegmentKeys(hasher, memory_bytes=self._memory_bytes, position=position, end=end)
            if not keys.catch_up(part, pace):
                return None
            return SortedEntries(b"".join(keys.sorted_entries(pace)))
        except CorruptLog:
            return None
        finally:
            if keys is not None:
                keys.close()


def _merged(
    layers: Sequence[KeyIndex | SortedEntries], start: int, memory_bytes: int, pace: Pacing
) -> array[int]:
    """The newest offset of each key in ``layers``, without those before ``start``; in the order of hashes."""
    offsets = array("Q")
    previous = b""
    # Of one key, the entries come in the order of offsets.
    for number, entry in enumerate(heapq.merge(*(_entries_of(layer) for layer in layers), (_LAST,))):
        if number % 256 == 0:
            pace(0)
        if previous and previous[:HASH_BYTES] != entry[:HASH_BYTES]:
            offset = int.from_bytes(previous[HASH_BYTES:])
            if offset >= start:
                offsets.append(offset)
                if len(offsets) * OFFSET_BYTES > memory_bytes:
                    raise too_many_keys(memory_bytes)
        previous = entry
    return offsets


def _entries_of(layer: KeyIndex | SortedEntries) -> Iterator[bytes]:
    for start in range(0, layer.count, _BLOCK):
        block = layer.read(start, _BLOCK)
        for at in range(0, len(block), ENTRY_BYTES):
            yield block[at : at + ENTRY_BYTES]
