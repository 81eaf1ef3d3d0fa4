"""The simulation of shared storage (``shared_cluster``) with writers whose appends depend on the end of the log.

A writer that does not learn what became of its batch sends it again with the same end. If it is refused, what is in
the log at that end tells whether the first time was a success. So each of its batches is stored once, also without a
producer id, and one that was refused for good is never seen, however late a broker that was paused commits it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from stele.wire import record_batch as rb

from app.errors import OffsetOutOfRange, StorageUnavailable, UnexpectedEnd

from .batches import batch_of
from .shared_cluster import NAMES, PARTITIONS, Cluster, Producer, SimulatedBroker, fetch


class ConditionalCluster(Cluster):
    def __init__(self, seed: int, **classes: Any) -> None:
        super().__init__(seed, **classes)
        # The CRCs of batches that were refused for good.
        self.refused: set[int] = set()

    def producers(self, batches: int) -> list[Coroutine[Any, Any, None]]:
        return [
            *(Writer(self, number, is_idempotent=number > 1).run(batches) for number in range(4)),
            # Its appends move the end, too.
            Producer(self, 5, is_idempotent=False).run(batches),
        ]

    async def verify(self, broker: SimulatedBroker) -> None:
        await super().verify(broker)
        assert self.refused.isdisjoint(self.ledger.at.values()), "a batch that was refused is in the log"


class Writer:
    def __init__(self, cluster: ConditionalCluster, number: int, *, is_idempotent: bool) -> None:
        self._cluster = cluster
        self._number = number
        self._partition = number % PARTITIONS
        self._name = NAMES[self._partition]
        self._producer_id = number if is_idempotent else -1
        self._attempts = self._sequence = 0

    async def run(self, batches: int) -> None:
        for _ in range(batches):
            count = self._cluster.random.choice((1, 1, 3))
            end = await self._end()
            while (actual := await self._append(count, end)) is not None:
                end = actual
            self._sequence += count
            await asyncio.sleep(self._cluster.random.choice((0, 0.01, 1)))

    async def _end(self) -> int:
        """Return the end as some broker knows it, which may be out of date."""
        return (await self._cluster.some_broker()).engine.state(self._name).log_end_offset

    async def _append(self, count: int, end: int) -> int | None:
        """Append a batch of its own at ``end``; return the actual end if it was refused."""
        cluster = self._cluster
        self._attempts += 1
        values = [b"%d %d %d" % (self._number, self._attempts, at) for at in range(count)]
        batch = batch_of(values, producer_id=self._producer_id, base_sequence=self._sequence)
        crc, is_unknown = rb.check_batch(batch).crc, False
        while True:
            broker = await cluster.some_broker()
            copy = bytearray(batch)
            try:
                ticket = broker.engine.append(
                    self._name, copy, rb.check_produced(copy), sync=True, expected_end=end
                )
                assert ticket.future is not None
                async with asyncio.timeout(40):
                    await asyncio.shield(ticket.future)
            except UnexpectedEnd as error:
                # A repeat would have been recognized.
                is_told = self._producer_id >= 0 or not is_unknown
                if is_told or not await self._is_mine(end, crc):
                    cluster.refused.add(crc)
                    return error.log_end_offset
                return None
            except (StorageUnavailable, TimeoutError):
                # The broker is dead or paused, or cannot reach the database.
                is_unknown = True
                await asyncio.sleep(cluster.random.choice((0.01, 1)))
            else:
                assert ticket.base_offset == end, "a batch is not where it was expected"
                assert is_unknown or not ticket.is_repeat
                cluster.note_ack(self._partition, ticket, crc)
                return None

    async def _is_mine(self, offset: int, crc: int) -> bool:
        """Return whether this batch is in the log, or may have been deleted from it."""
        while True:
            broker = await self._cluster.some_broker()
            try:
                async with asyncio.timeout(40):
                    (read,) = await broker.engine.read([fetch(self._name, offset, 1)], 1)
            except TimeoutError:
                continue
            if isinstance(read.error, OffsetOutOfRange):
                return True
            if read.error is None and read.batches:
                return rb.read_header(read.batches).crc == crc
            await asyncio.sleep(1)
