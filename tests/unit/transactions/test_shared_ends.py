"""Nobody is told of the end of a transaction by a broker that does not know its markers.

A broker reports what it knew and a failover of the database has lost (ADR-0071). So what it acknowledges it must know.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from app.cluster.shared_transactions import Updated
from app.errors import CoordinatorNotAvailable, StorageUnavailable, UnknownTopic
from app.settings import Settings
from app.storage.shared.meta import PartitionId
from app.transactions.shared_coordinator import SharedTransactionCoordinator
from tests.support.simulated_time import SimulatedClock

TOPIC_ID = UUID(int=7)
UPDATED = Updated(result=None, history=4, partitions=[PartitionId(TOPIC_ID, 1)], has_offsets=False)


class _Broker:
    """Knows one topic; ``error`` is raised by a look at its ends, and ``history`` is that of its log."""

    def __init__(self, *, history: int = 4, error: Exception | None = None) -> None:
        self.refreshed: list[tuple[str, int]] = []
        self._history, self._error = history, error

    def topic_by_id(self, topic_id: bytes) -> object:
        return SimpleNamespace(name="pairs") if topic_id == TOPIC_ID.bytes else None

    async def refresh(self, partitions: Iterable[tuple[str, int]]) -> None:
        self.refreshed += partitions
        if self._error is not None:
            raise self._error

    def oldest_leader_epoch(self, topic: str, partition: int) -> int:
        return self._history


async def end(broker: _Broker) -> None:
    coordinator = SharedTransactionCoordinator(
        store=cast("Any", None),
        broker=cast("Any", broker),
        groups=cast("Any", None),
        clock=SimulatedClock(),
        settings=Settings(),
    )
    await coordinator.ended(UPDATED, ())


async def test_the_broker_looks_for_the_markers_before_it_answers() -> None:
    broker = _Broker()
    await end(broker)
    assert broker.refreshed == [("pairs", 1)]


async def test_without_an_answer_of_the_database_the_request_is_to_be_repeated() -> None:
    with pytest.raises(CoordinatorNotAvailable, match="nobody answers"):
        await end(_Broker(error=StorageUnavailable("a look", "nobody answers")))


async def test_an_end_in_an_earlier_history_is_not_acknowledged() -> None:
    with pytest.raises(CoordinatorNotAvailable, match="the database has begun another history"):
        await end(_Broker(history=5))


async def test_markers_in_a_topic_that_was_deleted_need_not_be_known() -> None:
    await end(_Broker(error=UnknownTopic("pairs")))
