"""Reads, decodes and encodes records once for all tails that send them.

Tails of a topic are mostly at its end, so an append is read by all of them at the same offset. A read lives as long
as a tail is sending it: a thousand clients that do not read share one copy, and its bytes count once towards
``decoded_bytes_max``. The newest reads live on, because most tails have sent one before the next tail asks for it.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from contextlib import aclosing
from dataclasses import dataclass, field

from stele.wire import record_batch as rb
from stele.wire.isolation_level import IsolationLevel
from stele.wire.record_batch import BatchHeader, RecordView

from ..broker.broker import Broker
from ..broker.reading.decoded_bytes import UNCOUNTED_BYTES, DecodedReader
from ..broker.reading.fetch import Fetched, PartitionFetch, batch_in_turns, batches_from, size_of
from ..errors import CorruptLog
from ..work_budget import WorkBudget

READ_BYTES = 256 * 1024
# Smaller reads are not worth counting.
_COUNTED_BYTES = 16 * 1024
# The newest reads that are kept for the next tail.
KEPT_READS, KEPT_BYTES = 64, 1024 * 1024
# What is made of a slice may be much larger than its records, whose bytes are counted; then each tail makes its own.
_MADE_BYTES = 256 * 1024
# Ways to show records of which a read keeps the texts; tails with others encode for themselves.
FORMS_MAX = 4


@dataclass(slots=True)
class TailSlice:
    """Records of one partition, and what tails have made of them; ``size`` is that of the records."""

    records: list[RecordView]
    size: int = 0
    _texts: dict[Hashable, list[bytes]] = field(default_factory=dict[Hashable, list[bytes]])
    _making: dict[Hashable, asyncio.Future[None]] = field(
        default_factory=dict[Hashable, "asyncio.Future[None]"]
    )

    def texts(self, form: Hashable, encode: Callable[[RecordView], bytes]) -> list[bytes]:
        """Return each record encoded; ``form`` names what ``encode`` does."""
        texts = self._texts.get(form)
        if texts is None:
            texts = [encode(record) for record in self.records]
            if len(self._texts) < FORMS_MAX:
                self._texts[form] = texts
        return texts

    async def texts_made(self, form: Hashable, make: Callable[[], Awaitable[list[bytes]]]) -> list[bytes]:
        """Return what ``make`` does of the records, as ``texts``; other tails wait for it."""
        while (texts := self._texts.get(form)) is None:
            making = self._making.get(form)
            if making is not None:
                await asyncio.wait([making])
                continue
            making = self._making[form] = asyncio.get_running_loop().create_future()
            try:
                texts = await make()
                if len(self._texts) < FORMS_MAX and sum(map(len, texts)) <= _MADE_BYTES:
                    self._texts[form] = texts
                return texts
            finally:
                del self._making[form]
                making.set_result(None)
        return texts


@dataclass(slots=True, weakref_slot=True, eq=False)
class TailRead:
    """The result of one fetch.

    ``parts`` are the slices of each batch with the offset after it. A batch that unpacks to more than
    ``UNCOUNTED_BYTES`` has none: each tail unpacks it for itself, with room for it.
    """

    fetched: Fetched
    offset: int
    parts: list[tuple[BatchHeader, list[TailSlice] | None]] = field(
        default_factory=list[tuple[BatchHeader, list[TailSlice] | None]]
    )
    corrupt: CorruptLog | None = None
    size: int = 0


class TailReads:
    """The reads that tails are sending."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._reads: weakref.WeakValueDictionary[Hashable, TailRead] = weakref.WeakValueDictionary()
        self._loading: dict[Hashable, asyncio.Future[TailRead | None]] = {}
        self._kept: deque[TailRead] = deque()
        self._kept_bytes = 0

    @property
    def bytes(self) -> int:
        """The decoded bytes that tails are sending, each counted once."""
        return sum(read.size for read in self._reads.values())

    async def read(
        self, topic: str, partition: int, offset: int, isolation: IsolationLevel, *, is_scan: bool
    ) -> TailRead:
        """Read from ``offset`` on, or return what another tail has read there.

        Raises:
            UnknownTopic, UnknownPartition: it was deleted meanwhile.
            ReadMemoryFull: other reads hold the room.
        """
        broker = self._broker
        # A topic that was created again, or a log that another history has replaced, is another one.
        key = (
            broker.topic(topic).topic_id,
            partition,
            broker.leader_epoch(topic, partition),
            offset,
            isolation,
        )
        while True:
            known = self._reads.get(key)
            if known is not None:
                return known
            loading = self._loading.get(key)
            if loading is None:
                break
            await asyncio.wait([loading])
            if loading.done() and (result := loading.result()) is not None:
                return result
        loading = self._loading[key] = asyncio.get_running_loop().create_future()
        read = None
        try:
            read = await self._load(topic, partition, offset, isolation, is_scan=is_scan)
            if read.parts:
                self._reads[key] = read
                self._keep(read)
            return read
        finally:
            del self._loading[key]
            # Those that wait get it, and keep it alive until they have sent it.
            loading.set_result(read if read is not None and read.parts else None)

    def _keep(self, read: TailRead) -> None:
        self._kept.append(read)
        self._kept_bytes += read.size
        while len(self._kept) > KEPT_READS or self._kept_bytes > KEPT_BYTES:
            self._kept_bytes -= self._kept.popleft().size

    async def _load(
        self, topic: str, partition: int, offset: int, isolation: IsolationLevel, *, is_scan: bool
    ) -> TailRead:
        request = PartitionFetch(
            topic=topic, partition=partition, offset=offset, max_bytes=READ_BYTES, isolation=isolation
        )
        (fetched,) = await self._broker.fetch([request], max_bytes=READ_BYTES, is_scan=is_scan)
        read = TailRead(fetched, offset)
        if fetched.error is not None:
            return read
        reader, turn = self._broker.decoded.reader(), WorkBudget()
        try:
            for header in batches_from(fetched, offset):
                size = rb.plain_size_max(fetched.batches, header)
                if size > UNCOUNTED_BYTES:
                    read.parts.append((header, None))
                    continue
                if read.size >= READ_BYTES:
                    break
                slices: list[TailSlice] = []
                async with aclosing(batch_in_turns(fetched, header, offset, turn, reader)) as decoded:
                    async for records in decoded:
                        slices.append(TailSlice(records, sum(map(size_of, records))))
                        read.size += slices[-1].size
                read.parts.append((header, slices))
        except CorruptLog as corrupt:
            read.corrupt = corrupt
        await self._count(read, reader)
        return read

    async def _count(self, read: TailRead, reader: DecodedReader) -> None:
        """Hold room for a read for as long as it lives."""
        if read.size <= _COUNTED_BYTES:
            return
        name = f"{read.fetched.topic}-{read.fetched.partition}"
        await reader.hold(read.size, f"a tail of {name} from offset {read.offset} on")
        weakref.finalize(read, reader.release, read.size).atexit = False
