"""An engine as a broker of a cluster sees it: offsets come with the commit, and others append, too."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from stele.wire.isolation_level import IsolationLevel
from stele.wire.messages import Durability
from stele.wire.record_batch import BatchHeader, check_produced

from app.clock import Clock
from app.errors import SteleError
from app.storage.disk.files import Files
from app.storage.embedded import EmbeddedEngine, EngineOptions
from app.storage.engine import AppendTicket, LogState, PartitionFetch, PartitionRead
from app.storage.topic_partition import TopicPartition
from app.storage.transactional_produce import TransactionalProduce


class LateEngine(EmbeddedEngine):
    """Commits appends one after the other, in their order, while ``may_commit`` is set.

    What ``append_elsewhere`` appends is not known here until a ``refresh``, a commit to the partition, a
    ``wait`` for it, or a read past the known end.
    """

    def __init__(self, files: Files, path: Path, *, clock: Clock, options: EngineOptions) -> None:
        super().__init__(files, path, clock=clock, options=options)
        self.may_commit = asyncio.Event()
        self.may_commit.set()
        # An append was begun.
        self.has_appended = asyncio.Event()
        # The next refresh fails with this error.
        self.refresh_error: SteleError | None = None
        # The end that is known of a partition to which another broker has appended.
        self._known_ends: dict[TopicPartition, int] = {}
        self._order = asyncio.Lock()
        self._commits: list[asyncio.Task[None]] = []

    # ── appends ──

    def append(
        self,
        topic_partition: TopicPartition,
        batches: bytearray | memoryview,
        headers: list[BatchHeader],
        *,
        sync: bool,
        needs_state: bool = False,
        transaction: TransactionalProduce | None = None,
        admit: Callable[[BatchHeader], None] | None = None,
        sync_later: bool = False,
        expected_end: int | None = None,
        is_copy: bool = False,
    ) -> AppendTicket:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # An append that nobody waits for may fail.
        future.add_done_callback(lambda ended: ended.exception())
        ticket = AppendTicket(durability=Durability.SYNCED if sync else Durability.APPENDED, future=future)
        commit = partial(
            super().append,
            topic_partition,
            batches,
            headers,
            sync=sync,
            sync_later=sync_later,
            needs_state=needs_state,
            admit=admit,
            transaction=transaction,
            expected_end=expected_end,
        )
        self.has_appended.set()
        self._commits.append(asyncio.create_task(self._commit(topic_partition, commit, ticket, future)))
        return ticket

    async def _commit(
        self,
        topic_partition: TopicPartition,
        commit: Callable[[], AppendTicket],
        ticket: AppendTicket,
        future: asyncio.Future[None],
    ) -> None:
        async with self._order:
            await self.may_commit.wait()
            try:
                committed = commit()
                if committed.future is not None:
                    await committed.future
            except SteleError as error:
                future.set_exception(error)
                return
            self._known_ends.pop(topic_partition, None)
            ticket.place(
                base_offset=committed.base_offset,
                last_offset=committed.last_offset,
                log_append_time_ms=committed.log_append_time_ms,
                log_start_offset=committed.log_start_offset,
                durability=ticket.durability,
                is_repeat=committed.is_repeat,
            )
            future.set_result(None)

    def sync(self, topic_partition: TopicPartition, ticket: AppendTicket) -> None:
        if ticket.is_placed:
            super().sync(topic_partition, ticket)
            return
        placed = ticket.future
        assert placed is not None
        synced: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._commits.append(asyncio.create_task(self._sync_placed(topic_partition, ticket, placed, synced)))
        ticket.wait_for(synced, Durability.SYNCED)

    async def _sync_placed(
        self,
        topic_partition: TopicPartition,
        ticket: AppendTicket,
        placed: asyncio.Future[None],
        synced: asyncio.Future[None],
    ) -> None:
        try:
            await placed
            last = AppendTicket(last_offset=ticket.last_offset, durability=Durability.APPENDED)
            super().sync(topic_partition, last)
            if last.future is not None:
                await last.future
        except SteleError as error:
            synced.set_exception(error)
        else:
            synced.set_result(None)

    async def flush(self, topic_partitions: Sequence[TopicPartition] | None = None) -> None:
        await self._committed()
        await super().flush(topic_partitions)

    async def close(self) -> None:
        await self._committed()
        await super().close()

    async def _committed(self) -> None:
        await asyncio.gather(*self._commits)
        self._commits.clear()

    # ── other brokers ──

    def append_elsewhere(self, topic_partition: TopicPartition, batches: bytearray) -> None:
        """Append as another broker does: nobody here is told."""
        log = self._logs[topic_partition]
        self._known_ends.setdefault(topic_partition, log.log_end_offset)
        log.append(batches, check_produced(batches), leader_epoch=self._manager.leader_epoch)

    async def refresh(self, topic_partitions: Collection[TopicPartition]) -> bool:
        # Over a network.
        await asyncio.sleep(0)
        error, self.refresh_error = self.refresh_error, None
        if error is not None:
            raise error
        moved = [name for name in topic_partitions if self._known_ends.pop(name, None) is not None]
        for name in moved:
            self._waiters.appended(name, 1)
        return bool(moved)

    def state(self, topic_partition: TopicPartition) -> LogState:
        state = super().state(topic_partition)
        end = self._known_ends.get(topic_partition)
        if end is None:
            return state
        return replace(
            state,
            high_watermark=end,
            log_end_offset=end,
            last_stable_offset=min(end, state.last_stable_offset),
        )

    def read_now(
        self, requests: Sequence[PartitionFetch], max_bytes: int, *, at_least_one: bool = True
    ) -> None:
        """Every read takes the way that may ask for the end."""

    async def read(self, requests: Sequence[PartitionFetch], max_bytes: int) -> list[PartitionRead]:
        ends = self._known_ends
        unknown = [name for r in requests if (name := r.topic_partition) in ends and r.offset != ends[name]]
        if unknown:
            await self.refresh(unknown)
        at_end = {name: end for r in requests if (end := ends.get(name := r.topic_partition)) is not None}
        reads = await super().read(requests, max_bytes)
        return [
            read
            if (end := at_end.get(TopicPartition(read.topic, read.partition))) is None
            else replace(read, batches=b"", aborted=[], high_watermark=end, last_stable_offset=end)
            for read in reads
        ]

    async def wait(
        self,
        positions: Mapping[TopicPartition, int],
        min_bytes: int,
        timeout_ms: int,
        *,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> None:
        await self.refresh(list(positions))
        await super().wait(positions, min_bytes, timeout_ms, isolation=isolation)
