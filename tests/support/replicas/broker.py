"""One broker: a real engine on simulated files, two stores, and the real replicator."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

from stele.wire import record_batch as rb

from app.broker.producing.producer_state import ProducerStates
from app.storage.cleaner import CleanerOptions
from app.storage.embedded import EmbeddedEngine, EngineOptions
from app.storage.engine import PartitionSpec
from app.storage.replica.options import ReplicaOptions
from app.storage.replica.replicator import Replicator
from app.storage.replica.store_uploads import StoreSource
from app.storage.topic_config import TopicConfig
from app.storage.topic_partition import TopicPartition

from ..simulated_files import SimulatedFiles
from ..simulated_time import SimulatedClock
from .bucket import SimulatedBucket
from .chain import Key
from .moments import Moment, logs_of
from .promises import CATALOG, GROUPS, Promises, Writer
from .tables import Rows, SimulatedImages, SimulatedTable

DATA = Path("/data")
_ENGINE = EngineOptions(
    checkpoint_interval_ms=2_000, retention_interval_ms=10**9, cleaner=CleanerOptions(is_enabled=False)
)


@dataclass(frozen=True, slots=True)
class Left:
    """What a broker leaves: files, and the rows of its stores."""

    files: SimulatedFiles
    rows: dict[str, Rows] = field(default_factory=dict[str, Rows])


class Broker:
    """Lives from ``start`` to ``close`` or ``die``."""

    def __init__(
        self,
        number: int,
        left: Left,
        *,
        bucket: SimulatedBucket,
        promises: Promises,
        options: ReplicaOptions,
        random: Random,
        flush_ms: int = 20,
    ) -> None:
        self.number = number
        self.files = left.files
        self.clock = SimulatedClock()
        self.door = bucket.door()
        self.tables = {name: SimulatedTable(name, random, left.rows.get(name)) for name in (CATALOG, GROUPS)}
        self.is_alive = False
        self.partitions: dict[TopicPartition, Key] = {}
        self._promises = promises
        self._options = options
        self._random = random
        self._incarnation = UUID(int=number)
        self._writer = promises.writers[str(self._incarnation)] = Writer(number)
        self.files.now_ms = self.clock.now_ms
        options_of_engine = replace(_ENGINE, flush_interval_ms=flush_ms)
        self.engine = EmbeddedEngine(self.files, DATA, clock=self.clock, options=options_of_engine)
        self._replica: Replicator | None = None

    @property
    def catalog(self) -> SimulatedTable:
        return self.tables[CATALOG]

    @property
    def groups(self) -> SimulatedTable:
        return self.tables[GROUPS]

    @property
    def replica(self) -> Replicator:
        assert self._replica is not None
        return self._replica

    # ── life ──

    async def open(self) -> None:
        """Recover the logs; nothing is replicated yet."""
        await self.engine.open()
        specs: list[PartitionSpec] = []
        for row, topic in self.catalog.rows.items():
            specs += self._specs(row.removeprefix("topic "), topic)
        await self.engine.create(specs)
        await self.engine.start()
        self.is_alive = True
        for name, key in self.partitions.items():
            # What was visible and is lost again had perhaps been committed.
            end = self.engine.state(name).log_end_offset
            row = commit_row(key)
            if self.groups.rows.get(row, 0) > end:
                await self.groups.write(row, end)

    async def replicate(self) -> None:
        self.catalog.before_submit = self._note_moment
        self._replica = Replicator(
            self.door,
            url="simulated://bucket",
            cluster_id="cluster",
            incarnation=self._incarnation,
            leader_epoch=lambda: self.engine.newest_leader_epoch,
            changes=self.engine.follow_changes(),
            stores=[
                StoreSource(SimulatedImages(table), table.submit)  # type: ignore[arg-type]
                for table in self.tables.values()
            ],
            clock=self.clock,
            options=self._options,
        )
        await self._replica.open()

    def _note_moment(self) -> None:
        """Note what there is in the turn in which the first store begins."""
        self._writer.moment = self.moment()

    def moment(self) -> Moment:
        return Moment(
            logs_of(self.engine, self.files),
            {name: dict(table.submitted) for name, table in self.tables.items()},
        )

    async def close(self) -> Left:
        """Shut down in order."""
        self.is_alive = False
        await self.replica.close()
        await self.engine.close()
        self.door.is_closed = True
        return Left(self.files.crash(self._random), {name: table.rows for name, table in self.tables.items()})

    async def die(self, *, loses_power: bool) -> Left:
        """Be killed now; what it has sent may still take effect."""
        self.is_alive = False
        left = self.copy(loses_power=loses_power)
        self.door.is_closed = True
        for table in self.tables.values():
            table.kill()
        if self._replica is not None:
            await end_tasks(self._replica)
        # In a world of its own.
        await self.engine.close()
        return left

    def copy(self, *, loses_power: bool = False) -> Left:
        """Return what a kill would leave now."""
        files = self.files.power_cut(self._random) if loses_power else self.files.crash(self._random)
        return Left(files, {name: dict(table.rows) for name, table in self.tables.items()})

    # ── topics ──

    def _specs(self, topic: str, row: dict[str, Any]) -> list[PartitionSpec]:
        specs: list[PartitionSpec] = []
        for number in range(row["partitions"]):
            name = TopicPartition(topic, number)
            self.partitions[name] = (row["id"], number)
            specs.append(
                PartitionSpec(
                    topic_partition=name,
                    topic_id=UUID(row["id"]),
                    config=config_of(row),
                    producer_state=ProducerStates(self.clock),
                )
            )
        return specs

    async def create_topic(self, topic: str, row: dict[str, Any]) -> None:
        await self.catalog.write(f"topic {topic}", row)
        if self.is_alive:
            await self.engine.create(self._specs(topic, row))

    async def delete_topic(self, topic: str) -> None:
        row = self.catalog.rows[f"topic {topic}"]
        await self.catalog.write(f"topic {topic}", None)
        names = [TopicPartition(topic, number) for number in range(row["partitions"])]
        for name in names:
            self.partitions.pop(name, None)
        await self.engine.drop(names)

    def is_compacted(self, name: TopicPartition) -> bool:
        return "c" in self.catalog.submitted[f"topic {name.topic}"]["config"]

    def has(self, name: TopicPartition) -> bool:
        """Return whether the log is open, and its topic not about to be deleted."""
        is_open = name in self.engine._manager.logs  # pyright: ignore[reportPrivateUsage]
        return is_open and f"topic {name.topic}" in self.catalog.submitted

    # ── records ──

    def append(self, name: TopicPartition, batches: bytearray, *, sync: bool) -> asyncio.Future[None] | None:
        return self.engine.append(name, batches, rb.check_produced(batches), sync=sync).future


def commit_row(key: Key) -> str:
    return f"commit {key[0]} {key[1]}"


def config_of(row: dict[str, Any]) -> TopicConfig:
    """Return the configuration of a topic: a few letters in the catalog."""
    config: str = row["config"]
    return TopicConfig(
        segment_bytes=row["segment"],
        cleanup_policy="compact" if "c" in config else "delete",
        min_cleanable_dirty_ratio=0.0,
        delete_retention_ms=0,
        file_delete_delay_ms=0,
        retention_ms=2_000 if "r" in config else 1 << 40,
        retention_bytes=500 if "b" in config else -1,
        index_interval_bytes=200,
    )


async def end_tasks(replica: Replicator) -> None:
    """End the tasks of a replicator whose process is dead."""
    tasks = replica._tasks  # pyright: ignore[reportPrivateUsage]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
