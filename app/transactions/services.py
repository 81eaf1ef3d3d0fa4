"""All that a listener may call about transactions, in one place."""

from __future__ import annotations

from dataclasses import dataclass

from ..broker.broker import Broker
from ..clock import Clock
from ..groups.services import Groups
from .atomic_requests import AtomicRequests
from .coordinator import TransactionCoordinator
from .writes import TransactionWrites


@dataclass(frozen=True, slots=True)
class Transactions:
    coordinator: TransactionCoordinator
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
    services = make_services(broker, groups, coordinator, clock)
    await services.atomic.open()
    return services


def make_services(
    broker: Broker, groups: Groups, coordinator: TransactionCoordinator, clock: Clock
) -> Transactions:
    """Return the services of a broker without transactions: all of them are refused."""
    writes = TransactionWrites(broker=broker, leases=groups.leases, transactions=coordinator)
    atomic = AtomicRequests(
        broker=broker,
        groups=groups.coordinator,
        transactions=coordinator,
        writes=writes,
        clock=clock,
        settings=broker.settings,
    )
    return Transactions(coordinator, writes, atomic)
