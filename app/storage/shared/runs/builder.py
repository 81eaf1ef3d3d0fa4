"""Build the run of a merged object from batches, with its indexes; for threads.

They are the sparse index and the key index.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import crc32c
from stele.wire import record_batch as rb

from ...cleaning.transactions import AbortedBatches
from ...disk.pace import Pacing
from ...keys.growing_keys import GrowingKeys
from ...keys.key_index import KeyHasher, key_index_bytes
from ...keys.key_scan import keyed_offsets
from ..meta import ByteSpan, PartitionId, RunRead
from .batches import CorruptRunError, batches_of
from .object_format import ObjectRun, footer_bytes, header_bytes
from .sparse_index import SparseIndexBuilder


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltRun:
    """One run.

    ``keys`` is its key index; empty if it has none, or too many keys for one.
    """

    batches: bytearray
    sparse_index: bytes
    keys: bytes
    max_timestamp: int


class RunBuilder:
    """Puts batches into a run, with a sparse index, and a key index with ``hasher``."""

    def __init__(self, base_offset: int, *, hasher: KeyHasher | None, memory_bytes: int) -> None:
        self._base_offset = base_offset
        self._batches = bytearray()
        self._index = SparseIndexBuilder()
        self._hasher = hasher
        self._keys = None if hasher is None else GrowingKeys(memory_bytes)
        self._max_timestamp = rb.NO_TIMESTAMP

    def append(self, batch: bytes, pace: Pacing) -> None:
        header = rb.read_header(batch)
        self._index.add(header.base_offset - self._base_offset, len(self._batches))
        self._batches += batch
        if header.record_count:
            self._max_timestamp = max(self._max_timestamp, header.max_timestamp)
        if (
            self._keys is not None
            and self._hasher is not None
            and not self._keys.put_records(keyed_offsets(batch, header, pace), self._hasher, pace)
        ):
            self.close()

    def build(self, next_offset: int, pace: Pacing) -> BuiltRun:
        keys = b""
        if self._keys is not None and self._hasher is not None:
            keys = key_index_bytes(
                b"".join(self._keys.sorted_entries(pace)),
                salt=self._hasher.salt,
                log_bytes=len(self._batches),
                next_offset=next_offset,
            )
        return BuiltRun(
            batches=self._batches,
            sparse_index=self._index.build(),
            keys=keys,
            max_timestamp=self._max_timestamp,
        )

    def close(self) -> None:
        """Return the memory of the keys."""
        if self._keys is not None:
            self._keys.close()
            self._keys = None


def key_index_of(
    batches: Iterable[tuple[bytes, rb.BatchHeader]],
    hasher: KeyHasher,
    *,
    log_bytes: int,
    next_offset: int,
    memory_bytes: int,
    pace: Pacing,
    aborted: AbortedBatches,
) -> bytes:
    """Return the key index of batches, without those of aborted transactions.

    Nothing if their keys do not fit into the memory.
    """
    keys = GrowingKeys(memory_bytes)
    try:
        for batch, header in batches:
            if not keys.put_records(keyed_offsets(batch, header, pace, aborted), hasher, pace):
                return b""
        entries = b"".join(keys.sorted_entries(pace))
        return key_index_bytes(entries, salt=hasher.salt, log_bytes=log_bytes, next_offset=next_offset)
    finally:
        keys.close()


def whole_run(run: RunRead, data: bytearray) -> Iterator[tuple[bytes, rb.BatchHeader]]:
    """Yield every batch of a run with its offsets.

    Raises:
        CorruptRunError: a batch is damaged, or the run does not end where the metadata says.
    """
    next_offset = run.base_offset
    for batch, header in batches_of(data, run.base_offset, is_cleaned=bool(run.cleaned_until)):
        yield batch, header
        next_offset = header.next_offset
    if next_offset != run.last_offset + 1:
        raise CorruptRunError(
            f"the batches end at offset {next_offset}, not {run.last_offset + 1}", position=len(data)
        )


def object_of(built: BuiltRun, partition_id: PartitionId, base_offset: int, next_offset: int) -> bytes:
    """Return the object that has one run; its key index lies between the run and the footer."""
    header = header_bytes()
    footer = footer_bytes(
        [
            ObjectRun(
                topic_id=partition_id.topic_id,
                partition=partition_id.partition,
                position=len(header),
                length=len(built.batches),
                offset_count=next_offset - base_offset,
                max_timestamp_ms=built.max_timestamp,
                crc=crc32c.crc32c(built.batches),
                base_offset=base_offset,
            )
        ]
    )
    return b"".join((header, built.batches, built.keys, footer))


def keys_span(built: BuiltRun) -> ByteSpan | None:
    """Return where the key index is in the object; None if there is none."""
    return ByteSpan(len(header_bytes()) + len(built.batches), len(built.keys)) if built.keys else None
