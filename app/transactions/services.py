"""All that a listener may call about transactions, in one place."""

from __future__ import annotations

from dataclasses import dataclass

from ..broker.broker import Broker
from ..clock import Clock
from ..cluster.shared_transactions import SharedTransactionStore
from ..groups.services import Groups, GroupServices
from .answer_store import Answers, LocalAnswers, SharedAnswers
from .atomic_requests import ATOMIC_PREFIX, AtomicRequests
from .coordinator import TransactionCoordinator
from .interface import TransactionService
from .shared_coordinator import SharedTransactionCoordinator
from .writes import TransactionWrites


@dataclass(frozen=True, slots=True)
class Transactions:
    coordinator: TransactionService
    writes: TransactionWrites
    atomic: AtomicRequests

    def begin_close(self) -> None:
        """Abort no more transactions that take too long; the groups refuse all calls."""
        self.coordinator.begin_close()

    async def close(self) -> None:
        """Finish the transactions that are ending.

        Open ones stay open until the next start.
        """
        await self.atomic.close()
        await self.coordinator.close()


async def open_services(
    broker: Broker, groups: Groups, coordinator: TransactionCoordinator, clock: Clock
) -> Transactions:
    """Return the services over an open coordinator; raises as ``AtomicRequests.open``."""
    answers = LocalAnswers(groups.coordinator.table, broker.settings)
    return await _open(broker, groups, coordinator, answers, clock, ATOMIC_PREFIX)


async def open_shared_services(
    broker: Broker, groups: GroupServices, store: SharedTransactionStore, clock: Clock
) -> Transactions:
    """Return the services of a broker with shared storage.

    Raises ``CoordinatorNotAvailable``.
    """
    settings = broker.settings
    coordinator = SharedTransactionCoordinator(
        store=store, broker=broker, groups=groups, clock=clock, settings=settings
    )
    await coordinator.open()
    # Each broker has ids of its own, whose open transactions it aborts when it starts.
    prefix = f"{ATOMIC_PREFIX}{settings.broker_id}-"
    return await _open(broker, groups, coordinator, SharedAnswers(store, settings), clock, prefix)


async def _open(
    broker: Broker,
    groups: GroupServices,
    coordinator: TransactionService,
    answers: Answers,
    clock: Clock,
    prefix: str,
) -> Transactions:
    writes = TransactionWrites(broker=broker, groups=groups, transactions=coordinator)
    atomic = AtomicRequests(
        broker=broker,
        answers=answers,
        transactions=coordinator,
        writes=writes,
        clock=clock,
        settings=broker.settings,
        prefix=prefix,
    )
    await atomic.open()
    return Transactions(coordinator, writes, atomic)
