"""A broker with transactions over a simulated disk and real SQLite files, and what a producer calls."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stele.wire import record_batch as rb
from stele.wire.control_record import MarkerType, read_marker
from stele.wire.isolation_level import IsolationLevel

from app.broker.broker import Broker
from app.broker.producing.produce import Acks, PendingProduce
from app.cluster.group_store import StoreChange
from app.cluster.sqlite.catalog import SqliteCatalog
from app.cluster.sqlite.groups import SqliteGroupStore
from app.groups.base.messages import CommitRequest, OffsetToCommit
from app.groups.coordinator import GroupCoordinator
from app.groups.table import GroupTable
from app.settings import Settings
from app.storage.embedded import EmbeddedEngine, EngineOptions
from app.storage.engine import PartitionFetch
from app.storage.topic_partition import TopicPartition
from app.storage.transactional_produce import TransactionalProduce
from app.transactions.coordinator import TransactionCoordinator
from app.transactions.messages import ProducerIdentity

from .engines import DATA, QUIET
from .simulated_files import SimulatedFiles
from .simulated_time import SimulatedClock

TIMEOUT_MS = 60_000


class CountedStore(SqliteGroupStore):
    """Calls ``around`` before and after each write: a life may end there."""

    def __init__(self, path: Path, around: Callable[[str, Path], None]) -> None:
        super().__init__(path)
        self._counted = path
        self._around = around

    def write(self, changes: Sequence[StoreChange]) -> None:
        self._around("store", self._counted)
        super().write(changes)
        self._around("store", self._counted)


@dataclass(frozen=True, slots=True)
class Marker:
    producer_id: int
    epoch: int
    is_commit: bool


@dataclass(slots=True)
class Content:
    """One partition, read record by record: what each transaction wrote, and how it ended."""

    committed: list[bytes] = field(default_factory=list[bytes])
    aborted: list[bytes] = field(default_factory=list[bytes])
    open: dict[int, list[bytes]] = field(default_factory=dict[int, list[bytes]])
    markers: list[Marker] = field(default_factory=list[Marker])
    # Where the batch of each value begins.
    offsets: dict[bytes, int] = field(default_factory=dict[bytes, int])

    def committed_before(self, offset: int) -> list[bytes]:
        """Return the committed values in batches before ``offset``, in their order."""
        return sorted(
            (value for value in self.committed if self.offsets[value] < offset), key=self.offsets.__getitem__
        )


class TransactionBench:
    """``files`` and the SQLite files in ``path`` are what is stored; topic ``orders`` has 3 partitions."""

    def __init__(
        self, path: Path, files: SimulatedFiles | None = None, options: EngineOptions = QUIET, **settings: Any
    ) -> None:
        self.path = path
        self.files = files or SimulatedFiles()
        self.clock = SimulatedClock()
        self.settings = Settings(data_dir=path, **settings)
        self._options = options
        self.broker: Broker
        self.groups: GroupCoordinator
        self.transactions: TransactionCoordinator

    async def open(self) -> TransactionBench:
        self.files.now_ms = self.clock.now_ms
        engine = EmbeddedEngine(self.files, DATA, clock=self.clock, options=self._options)
        await engine.open()
        catalog = SqliteCatalog(self.path / "metadata.sqlite")
        self.broker = Broker(engine=engine, catalog=catalog, clock=self.clock, settings=self.settings)
        await self.broker.open()
        await engine.start()
        store = CountedStore(self.path / "groups.sqlite", self.files.called)
        self.groups = GroupCoordinator(
            GroupTable(store=store, clock=self.clock, settings=self.settings, topic=self.broker.topic)
        )
        await self.groups.open()
        self.broker.observe_deletions(self.groups.forget_topic)
        self.transactions = TransactionCoordinator(
            broker=self.broker, groups=self.groups, clock=self.clock, settings=self.settings
        )
        await self.transactions.open()
        if not self.broker.has_topic("orders"):
            await self.broker.create_topic("orders", partitions=3)
        return self

    async def close(self) -> None:
        self.broker.begin_close()
        self.transactions.begin_close()
        self.groups.begin_close()
        await self.transactions.close()
        await self.groups.close()
        await self.broker.close()

    def copy_databases(self, path: Path) -> None:
        """Copy the SQLite files as a crash leaves them."""
        path.mkdir()
        for file in self.path.iterdir():
            if file.is_file() and not file.name.endswith("-shm"):
                shutil.copy(file, path / file.name)

    # ── what a producer calls ──

    async def begin(
        self, transactional_id: str = "t", expected: ProducerIdentity | None = None
    ) -> ProducerIdentity:
        return await self.transactions.init_producer_id(
            transactional_id, timeout_ms=TIMEOUT_MS, expected=expected
        )

    def produce(
        self,
        producer: ProducerIdentity,
        partition: int,
        *values: bytes,
        transactional_id: str = "t",
        sequence: int = 0,
        adds: bool = True,
        acks: Acks = Acks.LEADER,
        topic: str = "orders",
    ) -> PendingProduce:
        builder = rb.BatchBuilder(
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        for value in values:
            builder.append(timestamp_ms=self.clock.now_ms(), value=value)
        return self.broker.produce(
            topic,
            partition,
            builder.build(),
            acks=acks,
            transaction=TransactionalProduce(transactional_id=transactional_id, adds_partitions=adds),
        )

    async def add(
        self, producer: ProducerIdentity, *partitions: int, transactional_id: str = "t", topic: str = "orders"
    ) -> None:
        names = [TopicPartition(topic, partition) for partition in partitions]
        results = await self.transactions.add_partitions(transactional_id, producer, names)
        assert set(results.values()) <= {None}, results

    async def commit_offset(
        self, producer: ProducerIdentity, offset: int, *, transactional_id: str = "t", adds: bool = True
    ) -> None:
        request = CommitRequest(
            group=f"g-{transactional_id}",
            offsets=[OffsetToCommit(topic="orders", partition=0, offset=offset)],
        )
        if not adds:
            await self.transactions.add_offsets(transactional_id, producer, request.group)
        results = await self.transactions.commit_offsets(transactional_id, producer, request, adds_group=adds)
        assert results == [None], results

    async def end(
        self,
        producer: ProducerIdentity,
        *,
        commit: bool = True,
        bumps_epoch: bool = True,
        transactional_id: str = "t",
    ) -> ProducerIdentity:
        return await self.transactions.end(transactional_id, producer, commit=commit, bumps_epoch=bumps_epoch)

    # ── what readers see ──

    def committed_offset(self, transactional_id: str = "t") -> int:
        (offset,) = self.groups.committed(f"g-{transactional_id}", [("orders", 0)])
        return offset.offset

    def stable_offsets(self) -> list[tuple[int, int]]:
        """Return last stable offset and log end offset of each partition, all at one time."""
        states = [self.broker.log_state("orders", partition) for partition in range(3)]
        return [(state.last_stable_offset, state.log_end_offset) for state in states]

    async def raw(self, partition: int, topic: str = "orders") -> bytes:
        """Return all batches of a partition; wait for those that are not synced yet."""
        raw = bytearray()
        end = self.broker.log_state(topic, partition).log_end_offset
        offset = 0
        while offset < end:
            (read,) = await self.broker.fetch(
                [
                    PartitionFetch(
                        topic=topic,
                        partition=partition,
                        offset=offset,
                        max_bytes=1 << 20,
                        isolation=IsolationLevel.READ_UNCOMMITTED,
                    )
                ],
                max_bytes=1 << 20,
                min_bytes=1,
                max_wait_ms=TIMEOUT_MS,
            )
            assert read.error is None, read.error
            assert read.batches
            raw += read.batches
            offset = list(rb.iter_headers(read.batches))[-1].next_offset
        return bytes(raw)

    async def content(self, partition: int, *, until: int | None = None, topic: str = "orders") -> Content:
        """Read a partition up to ``until`` by brute force; checks that every marker ends a transaction."""
        raw = await self.raw(partition, topic)
        content = Content()
        epochs: dict[int, int] = {}
        for header in rb.iter_headers(raw):
            if until is not None and header.base_offset >= until:
                break
            producer_id = header.producer_id
            fenced_below = epochs.get(producer_id, -1)
            assert header.producer_epoch >= fenced_below, f"{header} after a marker of epoch {fenced_below}"
            if not header.is_control:
                values = [record.value or b"" for record in rb.decode_records(raw, header)]
                content.open.setdefault(producer_id, []).extend(values)
                content.offsets.update(dict.fromkeys(values, header.base_offset))
                continue
            marker = read_marker(raw, header)
            assert marker is not None
            assert producer_id in content.open, f"a marker at {header.base_offset} ends nothing"
            is_commit = marker.type is MarkerType.COMMIT
            ended = content.open.pop(producer_id)
            (content.committed if is_commit else content.aborted).extend(ended)
            content.markers.append(Marker(producer_id, header.producer_epoch, is_commit))
            epochs[producer_id] = header.producer_epoch
        return content

    async def read_committed(self, partition: int) -> list[bytes]:
        """Return the values that a consumer with read_committed sees, from what fetches return."""
        values: list[bytes] = []
        offset = 0
        while offset < self.stable_offsets()[partition][0]:
            (read,) = await self.broker.fetch(
                [PartitionFetch(topic="orders", partition=partition, offset=offset, max_bytes=1 << 20)],
                max_bytes=1 << 20,
            )
            assert read.error is None, read.error
            assert read.aborted is not None
            assert read.batches
            for header in rb.iter_headers(read.batches):
                assert header.base_offset < read.last_stable_offset
                offset = header.next_offset
                is_aborted = any(
                    aborted.producer_id == header.producer_id
                    and aborted.first_offset <= header.base_offset <= aborted.last_offset
                    for aborted in read.aborted
                )
                if not (header.is_control or is_aborted):
                    values += [record.value or b"" for record in rb.decode_records(read.batches, header)]
        return values

    async def committed_values(self) -> set[bytes]:
        """Return what ``read_committed`` returns for all partitions."""
        return {value for partition in range(3) for value in await self.read_committed(partition)}
