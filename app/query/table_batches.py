"""The table of a compacted partition as RecordBatch v2.

It is for clients that decode batches themselves.

The records are those of ``table``. A batch whose records all belong to the table is
returned as it is stored; of the others, only the records that do, in a batch with the
same header fields and codec. A single record is returned as a batch of its own.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from stele.wire import record_batch as rb
from stele.wire.compression import Compression

from ..broker.broker import Broker
from ..broker.reading.decoded_bytes import UNCOUNTED_BYTES, DecodedReader
from ..broker.reading.fetch import Fetched, PartitionFetch, batches_from
from ..errors import CorruptLog, InvalidRequest, OffsetOutOfRange
from ..storage.cleaning.batch_filter import with_chosen
from ..storage.disk.pace import Pace
from ..storage.keys.newest_offsets import NewestOffsets
from ..work_budget import pause

_PIECE_BYTES = 256 * 1024
# The timestamp types of a decoded record.
_CREATE_TIME, _LOG_APPEND_TIME = 0, 1
# A batch up to this size is filtered on the event loop, a larger one in a thread.
_THREAD_BYTES = 4 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class TableBatches:
    """A part of the table of one partition, in the order of offsets.

    ``batches`` may begin before the requested offset, as those of a fetch. The next page
    begins at ``next_offset``, with the same ``end_offset``. After the last page, the table
    is that at ``next_offset``: the reader goes on from there.
    """

    batches: list[bytes]
    next_offset: int
    end_offset: int
    is_last: bool


async def newest_batch(
    broker: Broker, topic: str, key: bytes, *, partition: int | None = None
) -> tuple[int, bytes] | None:
    """Return the partition of a key's newest record, and a batch with that record.

    The batch has no other record.

    None if no record has the key. Raises what ``KeyedReader.newest_record`` raises.
    """
    newest = await broker.keyed.newest_record(topic, key, broker.decoded.reader(), partition=partition)
    if newest is None:
        return None
    record = newest.record
    try:
        # Built from the decoded record: to cut it out of a large stored batch takes ten times as long.
        if newest.opened.is_large:
            # It need not fit into a frame as it is.
            batch = await asyncio.to_thread(_batch_of, record, Compression.ZSTD)
        else:
            batch = _batch_of(record, Compression.NONE)
    finally:
        await newest.opened.close()
    rb.assign_offsets(batch, 0, record.offset, broker.leader_epoch(topic, newest.partition))
    if getattr(record, "timestamp_type", _CREATE_TIME) == _LOG_APPEND_TIME:
        rb.set_log_append_time(batch, rb.read_header(batch), record.timestamp)
    return newest.partition, bytes(batch)


def _batch_of(record: rb.RecordView, compression: Compression) -> bytearray:
    builder = rb.BatchBuilder(compression=compression)
    builder.append(timestamp_ms=record.timestamp, key=record.key, value=record.value, headers=record.headers)
    return builder.build()


async def table_batches(
    broker: Broker,
    topic: str,
    partition: int,
    *,
    offset: int,
    end_offset: int = -1,
    max_bytes: int,
    with_tombstones: bool = False,
) -> TableBatches:
    """Return the table of one partition from ``offset`` on, about ``max_bytes``.

    It consists of batches.

    At least one batch is returned unless the page is the last one. ``end_offset`` -1
    stands for the last stable offset; the result has the ``end_offset`` for the next pages.

    Raises:
        UnknownTopic, UnknownPartition, InternalTopic: the partition does not exist.
        TopicNotCompacted: the topic keeps no newest record per key.
        OffsetOutOfRange: ``end_offset`` is past the last stable offset.
        CorruptLog: nothing can be read at ``offset``.
        InvalidRequest: an offset is negative, or there are more keys than the memory allows.
    """
    if offset < 0 or end_offset < -1:
        raise InvalidRequest(
            f"offset is {offset} and end offset {end_offset}; the first page has 0 and -1, "
            "the others what the page before returned"
        )
    state = broker.log_state(topic, partition)
    page = _Page(
        position=max(offset, state.log_start_offset),
        end_offset=state.last_stable_offset if end_offset < 0 else end_offset,
        max_bytes=max_bytes,
        with_tombstones=with_tombstones,
    )
    newest = await broker.keyed.newest_offsets(topic, partition, page.end_offset)
    reader = broker.decoded.reader()
    while not page.is_full:
        try:
            if page.position < page.end_offset:
                page.position = newest.next_from(page.position)
            page.until = max(page.end_offset, broker.keyed.compacted_until(topic, partition))
            if page.position >= page.until:
                # Nothing was awaited since the last read.
                return page.result(is_last=True)
            if page.position >= page.end_offset:
                page.position = max(page.position, broker.log_state(topic, partition).log_start_offset)
            await _read_piece(broker, topic, partition, page, newest, reader)
        except CorruptLog:
            if not page.batches:
                raise
            break
    return page.result(is_last=False)


async def _read_piece(
    broker: Broker, topic: str, partition: int, page: _Page, newest: NewestOffsets, reader: DecodedReader
) -> None:
    """Read once from the position of ``page`` on."""
    wanted_bytes = max(1, min(page.left_bytes, _PIECE_BYTES))
    request = PartitionFetch(topic=topic, partition=partition, offset=page.position, max_bytes=wanted_bytes)
    (fetched,) = await broker.fetch([request], max_bytes=wanted_bytes)
    if fetched.error is not None:
        if isinstance(fetched.error, OffsetOutOfRange) and fetched.error.is_gone:
            page.position = fetched.error.log_start_offset
            return
        raise fetched.error
    if not fetched.batches:
        # Deleted since it was found; the next read reports that.
        await pause()
        return
    # One batch at a time is unpacked.
    size = max(
        (rb.plain_size_max(fetched.batches, header) for header in rb.iter_headers(fetched.batches)), default=0
    )
    if len(fetched.batches) <= _THREAD_BYTES and size <= UNCOUNTED_BYTES:
        page.take(fetched, newest, Pace(threading.Event()))
        await pause()
        return
    held_bytes = size if size > UNCOUNTED_BYTES else 0
    if held_bytes:
        await reader.hold(held_bytes, f"a batch of {topic}-{partition} from offset {page.position} on")
    aborted = threading.Event()
    try:
        await asyncio.to_thread(page.take, fetched, newest, Pace(aborted))
    except asyncio.CancelledError:
        aborted.set()
        raise
    finally:
        if held_bytes:
            reader.release(held_bytes)


class _Page:
    """The batches of a page so far, and the position after them."""

    def __init__(self, *, position: int, end_offset: int, max_bytes: int, with_tombstones: bool) -> None:
        self.position = position
        self.end_offset = end_offset
        # Up to here a record may be missing whose newer one is after the end offset.
        self.until = end_offset
        self.batches: list[bytes] = []
        self.left_bytes = max_bytes
        self.is_full = False
        self._with_tombstones = with_tombstones

    def result(self, *, is_last: bool) -> TableBatches:
        return TableBatches(
            batches=self.batches, next_offset=self.position, end_offset=self.end_offset, is_last=is_last
        )

    def take(self, fetched: Fetched, newest: NewestOffsets, pace: Pace) -> None:
        """Take what belongs to the table of ``fetched``, until the page is full.

        Raises:
            CorruptLog: a batch is corrupt; those before it were taken.
            WorkAborted: ``pace`` ends the work.
        """
        for header in batches_from(fetched, self.position):
            if self.position >= self.until:
                return
            if self.position < self.end_offset:
                following = newest.at_or_after(self.position)
                if following is None:
                    return
                if following >= header.next_offset:
                    self.position = header.next_offset
                    continue
            batch = self._of_batch(fetched, header, newest, pace)
            if batch:
                if self.batches and len(batch) > self.left_bytes:
                    self.is_full = True
                    return
                self.batches.append(batch)
                self.left_bytes -= len(batch)
            self.position = header.next_offset
            if self.batches and self.left_bytes <= 0:
                self.is_full = True
                return
            pace(header.size)

    def _of_batch(self, fetched: Fetched, header: rb.BatchHeader, newest: NewestOffsets, pace: Pace) -> bytes:
        if not header.record_count:
            return b""
        is_whole = self._with_tombstones and header.record_count == newest.count_between(
            header.base_offset, header.next_offset
        )
        if is_whole or header.base_offset >= self.end_offset:
            return _raw(fetched, header)
        return _chosen(fetched, header, partial(self._is_wanted, newest), lambda: pace(0))

    def _is_wanted(self, newest: NewestOffsets, offset: int, has_value: bool) -> bool:
        return offset >= self.end_offset or ((has_value or self._with_tombstones) and offset in newest)


def _raw(fetched: Fetched, header: rb.BatchHeader) -> bytes:
    return bytes(memoryview(fetched.batches)[header.position : header.position + header.size])


def _chosen(
    fetched: Fetched,
    header: rb.BatchHeader,
    is_chosen: Callable[[int, bool], bool],
    pause_work: Callable[[], object] = lambda: None,
) -> bytes:
    """Return the batch with the chosen records; nothing if there are none.

    Raises ``CorruptLog``.
    """
    raw = _raw(fetched, header)
    try:
        return with_chosen(raw, rb.read_header(raw), is_chosen, pause_work).data
    except rb.CorruptBatchError as error:
        # An engine without files says nothing of where it is.
        origin = fetched.origin
        raise CorruptLog(
            path=Path(f"{fetched.topic}-{fetched.partition}") if origin is None else origin.path,
            position=header.position + (0 if origin is None else origin.position),
            offset=header.base_offset,
            next_offset=header.next_offset,
            reason=error.reason,
        ) from error
