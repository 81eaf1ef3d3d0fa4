"""Keeps the ids, epochs and per-partition state of idempotent and named producers.

Each partition has a ``ProducerStates`` of its own (``producer_state.py``): the log
fills it, and the engine asks it about retries. This module holds what spans partitions: it
hands out producer ids, keeps the epoch of each named producer (ADR-0015), expires the state
of producers that stopped writing, and limits how many there are.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain

from stele.wire.control_record import EndTransactionMarker

from ...clock import Clock, PatientClock
from ...cluster.catalog import USE_STORED_MS, NamedProducer
from ...errors import BrokerClosing, InvalidRequest, StorageUnavailable
from ...settings import Settings
from ...storage.topic_partition import ByPartition, TopicPartition
from ...work_budget import WorkBudget, in_turns, sorted_in_turns
from ..catalog_thread import CatalogThread
from .producer_state import Arrivals, OpenTransaction, ProducerStates

logger = logging.getLogger(__name__)

# Ids are taken from the catalog in blocks: one synced transaction serves many producers.
_PRODUCER_ID_BLOCK = 1000
# 30 days after the last use, which is longer than any job is left unfinished. A name takes some hundred bytes, and
# jobs keep making new ones. What the catalog knows of the last use may be older than it was.
_NAMED_PRODUCERS_KEPT_MS = 30 * 24 * 3_600_000 + USE_STORED_MS
# As in Kafka: producer.id.expiration.check.interval.ms.
_CHECK_INTERVAL_MS = 600_000
# How often the number of producers is compared with its limit, if a part of as many have come since. As large a part is
# free afterwards.
_LIMIT_INTERVAL_MS = 10_000
_SPARE_PARTS = 10
# Producers that take as long as a partition without any.
_PRODUCERS_PER_VISIT = 50
PRODUCER_NAME_CHARACTERS_MAX = 500
PRODUCER_VERSION_MAX = 2**63 - 1


class Producers:
    """All producers of one broker."""

    def __init__(self, *, catalog: CatalogThread, clock: Clock, settings: Settings) -> None:
        self._catalog = catalog
        self._clock = clock
        self._expiration_ms = settings.producer_id_expiration_ms
        # As often as they expire, at least.
        self._check_interval_ms = min(_CHECK_INTERVAL_MS, self._expiration_ms)
        self._states = ByPartition[ProducerStates]()
        self._states_max = settings.producer_states_max
        self._arrivals = Arrivals()
        # How many were forgotten because there were too many.
        self.forgotten = 0
        self._ids: Iterator[int] = iter(())
        self._ids_lock = asyncio.Lock()
        # By the id of a named producer: a partition learns of a new epoch only from a batch written with it.
        self._named_epochs: dict[int, int] = {}
        self._upkeep: list[asyncio.Task[None]] = []
        self._is_closing = False

    async def open(self) -> None:
        """Load the epochs of named producers, and start expiring producers."""
        self._named_epochs.update(await self._catalog.run(lambda catalog: catalog.named_epochs()))
        self._upkeep = [asyncio.create_task(self._expire()), asyncio.create_task(self._keep_limit())]

    def begin_close(self) -> None:
        """Hand out no more producer ids."""
        self._is_closing = True

    def close(self) -> None:
        """Stop expiring producers; the catalog is closed by its owner."""
        for task in self._upkeep:
            task.cancel()

    async def _expire(self) -> None:
        clock = PatientClock(self._clock)
        while True:
            await asyncio.sleep(self._check_interval_ms / 1000)
            now_ms = clock.now_ms()
            try:
                await self._forget_named(now_ms)
            except StorageUnavailable as error:
                logger.warning("named producers that are no longer used are kept for now: %s", error)
            await self._forget(now_ms - self._expiration_ms)

    async def _forget(self, before_ms: int) -> int:
        budget, count = WorkBudget(), 0
        for states in list(self._states.values()):
            count += await in_turns(states.expire(before_ms))
            await budget.visit(1 + len(states) // _PRODUCERS_PER_VISIT)
        return count

    @property
    def count(self) -> int:
        """Return how many producers are remembered, counted once per partition that they have written to."""
        return sum(map(len, self._states.values()))

    async def _keep_limit(self) -> None:
        while True:
            await asyncio.sleep(_LIMIT_INTERVAL_MS / 1000)
            # To count them takes longer with more partitions.
            if self._arrivals.count >= self._states_max // _SPARE_PARTS:
                self._arrivals.count = 0
                await self.keep_limit()

    async def keep_limit(self) -> None:
        """Forget the producers that have written nothing for longest, if there are too many.

        Then there is room for some more. Those of a second are forgotten together.
        """
        if self.count <= self._states_max:
            return
        seconds, budget = Counter[int](), WorkBudget()
        for states in list(self._states.values()):
            await in_turns(states.count_last_uses(seconds))
            await budget.visit()
        left, wanted, before_ms = seconds.total(), self._states_max - self._states_max // _SPARE_PARTS, 0
        this_second = self._clock.now_ms() // 1000
        for second, count in await sorted_in_turns(list(seconds.items()), lambda item: item[0]):
            if left <= wanted or second >= this_second:
                break
            left, before_ms = left - count, (second + 1) * 1000
        forgotten = await self._forget(before_ms)
        self.forgotten += forgotten
        logger.warning(
            "%d producers that had written nothing for longest were forgotten, because partitions remembered more than "
            "%d (STELE_PRODUCER_STATES_MAX); a retry of one of them may be stored twice",
            forgotten,
            self._states_max,
        )

    async def _forget_named(self, now_ms: int) -> None:
        """Forget names that are no longer used.

        Partitions must still know what they are about to forget: it tells of the last use.
        """
        last_uses: dict[int, int] = {}
        budget = WorkBudget()
        for states in list(self._states.values()):
            for producer_id, used_ms in states.last_uses(self._named_epochs).items():
                last_uses[producer_id] = max(used_ms, last_uses.get(producer_id, 0))
            await budget.visit(1 + len(states) // _PRODUCERS_PER_VISIT)
        kept_ms = max(_NAMED_PRODUCERS_KEPT_MS, 2 * self._expiration_ms)
        forgotten = await self._catalog.run(
            lambda catalog: catalog.forget_named_producers(
                now_ms=now_ms, kept_ms=kept_ms, last_uses=last_uses
            )
        )
        for producer_id in forgotten:
            self._named_epochs.pop(producer_id, None)

    # ── partitions ──

    def add_partition(self, topic_partition: TopicPartition) -> ProducerStates:
        """Return the new, empty state of a partition; its log fills it."""
        states = self._states[topic_partition] = ProducerStates(
            self._clock, named_epochs=self._named_epochs, arrivals=self._arrivals
        )
        return states

    def forget_partitions(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Drop the state of partitions that were deleted."""
        for topic_partition in topic_partitions:
            self._states.pop(topic_partition, None)

    def must_append(
        self,
        topic_partition: TopicPartition,
        producer_id: int,
        producer_epoch: int,
        marker: EndTransactionMarker,
    ) -> bool:
        """Return whether a marker changes anything in the partition; raises as ``ProducerStates.must_append``."""
        return self._states[topic_partition].must_append(producer_id, producer_epoch, marker)

    def open_since(self, topic_partition: TopicPartition, producer_id: int) -> int | None:
        """See ``ProducerStates.open_since``."""
        return self._states[topic_partition].open_since(producer_id)

    def open_transactions(self, topic_partition: TopicPartition | None = None) -> list[OpenTransaction]:
        """Return the open transactions of one partition or of all; the oldest of a partition comes first."""
        if topic_partition is not None:
            return self._states[topic_partition].open_transactions(topic_partition)
        return [
            transaction
            for name, states in self._states.items()
            if states.first_open_offset is not None
            for transaction in states.open_transactions(name)
        ]

    # ── ids ──

    async def new_id(self) -> tuple[int, int]:
        """Return a producer id that was never given out before, and its epoch 0.

        Raises ``BrokerClosing``.
        """
        if self._is_closing:
            raise BrokerClosing
        async with self._ids_lock:
            producer_id = next(self._ids, None)
            if producer_id is None:
                producer_id = await self._catalog.run(
                    lambda catalog: catalog.next_producer_id_block(_PRODUCER_ID_BLOCK)
                )
                self._ids = iter(range(producer_id + 1, producer_id + _PRODUCER_ID_BLOCK))
            return producer_id, 0

    async def reserve_ids(self, newest_id: int) -> None:
        """Give out no ids up to ``newest_id``: batches that were copied have them."""
        async with self._ids_lock:
            await self._catalog.run(lambda catalog: catalog.reserve_producer_ids(newest_id))
            if (following := next(self._ids, None)) is not None and following > newest_id:
                self._ids = chain((following,), self._ids)
            else:
                self._ids = iter(())

    async def begin_version(self, name: str, version: int) -> NamedProducer:
        """Begin ``version`` of the producer ``name``, or resume it if it has begun.

        Both give the same producer id and epoch, so that a job that is run again
        finds what it had stored: the records with that epoch. A newer version means
        that the previous one is complete, and fences it.

        Raises:
            InvalidRequest: the name or version is out of bounds; a newer version has begun;
                or this one began so long ago that partitions may have forgotten its batches.
            BrokerClosing: see ``new_id``.
        """
        if not 0 < len(name) <= PRODUCER_NAME_CHARACTERS_MAX:
            raise InvalidRequest(
                f"a producer's name has {len(name)} characters; it must have 1 to {PRODUCER_NAME_CHARACTERS_MAX}"
            )
        if not 0 <= version <= PRODUCER_VERSION_MAX:
            raise InvalidRequest(f"a producer's version is {version}; it must be 0 or more")
        fresh_id, _ = await self.new_id()
        now_ms = self._clock.now_ms()
        producer = await self._catalog.run(
            lambda catalog: catalog.begin_producer_version(name, version, fresh_id=fresh_id, now_ms=now_ms)
        )
        self._named_epochs[producer.producer_id] = producer.epoch
        if producer.version != version:
            raise InvalidRequest(
                f"version {version} of producer {name!r} is older than version {producer.version}, which has "
                "begun: it is complete, or belongs to a checkpoint that was replaced; continue with that version, "
                "or choose a new name"
            )
        if producer.is_resumed and now_ms - producer.begun_at_ms > self._expiration_ms:
            raise InvalidRequest(
                f"version {version} of producer {name!r} began more than {self._expiration_ms} ms ago "
                "(STELE_PRODUCER_ID_EXPIRATION_MS), so the broker no longer knows which of its records are "
                "stored; compare them with the topic, then choose a new name"
            )
        return producer
