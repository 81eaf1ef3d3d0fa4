"""The simulation of shared storage (``shared_cluster``) with mirrors, several of each partition at a time.

Each goes on where some broker says that the copy ends. The copies must always have exactly what their source has, at its
offsets and with its leader epochs, from their log start on: nothing twice, and nothing left out but what the source has
deleted. At some moment a copy is ended: what is appended then follows, and no copy comes after it, however late a broker that
was paused commits it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from stele.wire import record_batch as rb

from app.errors import InvalidRequest, StorageUnavailable, UnexpectedEnd
from app.storage.engine import PartitionRead
from app.storage.topic_config import TopicConfig

from .batches import batch_of
from .shared_cluster import NAMES, PARTITIONS, Cluster, SimulatedBroker

_MIRRORS = 2


class CopyingCluster(Cluster):
    def __init__(self, seed: int, **classes: Any) -> None:
        super().__init__(seed, **classes)
        self.config = TopicConfig(mirror="prod")
        # Of each partition: the batches of the source, the first offset that it has, and the first of those that follow a copy
        # that was ended.
        self.source: list[list[tuple[rb.BatchHeader, bytes]]] = [[] for _ in NAMES]
        self.starts = [0] * PARTITIONS
        self.followers: list[dict[int, int]] = [{} for _ in NAMES]
        self.is_ended = [False] * PARTITIONS

    def producers(self, batches: int) -> list[Coroutine[Any, Any, None]]:
        for partition, source in enumerate(self.source):
            offset = epoch = 0
            for number in range(2 * batches):
                offset += self.random.choice((0, 0, 1, 9))
                epoch += self.random.choice((0, 0, 0, 1))
                values = [b"%d %d %d" % (partition, number, at) for at in range(self.random.choice((1, 3)))]
                values[0] += b"x" * self.random.choice((0, 40, 400))
                batch = batch_of(values, producer_id=self.random.choice((-1, 5)), base_sequence=number)
                rb.assign_offsets(batch, 0, offset, epoch)
                source.append((rb.check_batch(batch), bytes(batch)))
                offset = source[-1][0].next_offset
        return [self._mirror(partition) for partition in range(PARTITIONS) for _ in range(_MIRRORS)]

    async def _mirror(self, partition: int) -> None:
        """Copy a partition, now by way of this broker and now of that one, as ``Copies`` does."""
        name, source = NAMES[partition], self.source[partition]
        while True:
            broker = await self.some_broker()
            try:
                async with asyncio.timeout(40):
                    await broker.engine.refresh([name])
                    end = broker.engine.state(name).log_end_offset
                    if self.starts[partition] > end:
                        end = self.starts[partition]
                        await broker.engine.skip_to(name, end)
                    following = [one for one in source if one[0].base_offset >= end]
                    if not following:
                        return
                    await self._append(broker, partition, following[: self.random.randint(1, 3)], end)
            except InvalidRequest:
                assert self.is_ended[partition]
                return
            except (StorageUnavailable, UnexpectedEnd, TimeoutError):
                await asyncio.sleep(self.random.choice((0.01, 1)))
            await asyncio.sleep(self.random.choice((0, 0.01, 1)))

    async def _append(
        self, broker: SimulatedBroker, partition: int, some: list[tuple[rb.BatchHeader, bytes]], end: int
    ) -> None:
        raw, headers, position = bytearray(), list[rb.BatchHeader](), 0
        for _, batch in some:
            raw += batch
            header = rb.read_header(raw, position)
            header.position = position
            headers.append(header)
            position = len(raw)
        ticket = broker.engine.append(
            NAMES[partition], raw, headers, sync=False, expected_end=end, is_copy=True
        )
        assert ticket.future is not None
        await asyncio.shield(ticket.future)
        assert (ticket.base_offset, ticket.last_offset) == (headers[0].base_offset, headers[-1].last_offset)
        for header, _ in some:
            self.ledger.ack(partition, header.base_offset, header.next_offset, header.crc)

    def actions(self) -> list[tuple[int, Callable[[], object]]]:
        return [
            *super().actions(),
            (2, self._delete_at_source),
            (1, lambda: self.deed(self._end_copies())),
        ]

    def _delete_at_source(self) -> None:
        partition = self.random.randrange(PARTITIONS)
        source = self.source[partition]
        if source and not self.is_ended[partition]:
            first = self.random.choice(source[: len(source) // 2 + 1])[0].base_offset
            self.starts[partition] = max(self.starts[partition], first)

    async def _end_copies(self) -> None:
        """Promote a partition: end the copy, then append what the source does not have."""
        partition = self.random.randrange(PARTITIONS)
        self.is_ended[partition] = True
        while True:
            broker = await self.some_broker()
            name = NAMES[partition]
            batch = batch_of([b"new %d" % self.random.getrandbits(40)])
            crc = rb.check_batch(batch).crc
            try:
                async with asyncio.timeout(40):
                    await broker.engine.stop_copies([name])
                    await broker.engine.end_copies(name)
                    end = broker.engine.state(name).log_end_offset
                    ticket = broker.engine.append(
                        name, batch, rb.check_produced(batch), sync=True, expected_end=end
                    )
                    assert ticket.future is not None
                    self.followers[partition][crc] = end
                    await asyncio.shield(ticket.future)
            except (StorageUnavailable, UnexpectedEnd, TimeoutError):
                await asyncio.sleep(1)
            else:
                self.note_ack(partition, ticket, crc)
                return

    def check_read(self, partition: int, offset: int, read: PartitionRead) -> int:
        raw = bytes(read.batches)
        assert raw, f"nothing is returned at offset {offset}"
        at, followers = offset, self.followers[partition]
        known = {header.base_offset: header for header, _ in self.source[partition]}
        for header in rb.iter_headers(raw):
            rb.check_batch(raw, header.position)
            self.ledger.see(partition, header.base_offset, header.crc)
            copied = known.get(header.base_offset)
            if copied is not None and header.crc == copied.crc:
                assert header.partition_leader_epoch == copied.partition_leader_epoch, "another leader epoch"
                # What is before it has no record at the source either.
                left_out = [
                    base for base, one in known.items() if at < one.next_offset and base < header.base_offset
                ]
                assert not left_out, f"batches at {left_out} are left out"
            else:
                assert header.crc in followers, f"the source has no such batch at {header.base_offset}"
                assert self.is_ended[partition]
                # Of those that the copy has, or had.
                epochs = [
                    one.partition_leader_epoch
                    for one in known.values()
                    if self.ledger.at.get((partition, one.base_offset)) == one.crc
                ]
                assert header.partition_leader_epoch > max(epochs, default=-1), "an epoch of the source"
            at = header.next_offset
        assert at > offset
        return at
