"""Ends transactions past their timeout, and forgets unused transactional ids."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from ..clock import Clock, PatientClock
from ..cluster.transaction_store import DeleteTransaction
from ..errors import SteleError
from ..groups.base.timers import Scheduler, Timer
from ..groups.coordinator import GroupCoordinator
from ..settings import Settings
from ..work_budget import WorkBudget
from .endings import Endings
from .plans import Moment
from .states import TransactionState
from .table import TransactionTable
from .transaction import Transaction

logger = logging.getLogger(__name__)

# Deleted in one transaction of the store; those that are left expire with the next check.
_EXPIRED_AT_ONCE = 1000
# As in Kafka: transaction.remove.expired.transaction.cleanup.interval.ms.
EXPIRATION_CHECK_INTERVAL_MS = 3_600_000


class Timeouts:
    """Checks the transactions of ``table`` from time to time.

    ``timed_out`` counts those that took too long.
    """

    def __init__(
        self,
        *,
        groups: GroupCoordinator,
        table: TransactionTable,
        endings: Endings,
        clock: Clock,
        settings: Settings,
        now: Callable[[], Moment],
    ) -> None:
        self._groups = groups
        self._table = table
        self._endings = endings
        self._settings = settings
        self._now = now
        # A wall clock that jumps ahead expires nothing.
        self._patient = PatientClock(clock)
        self._timers: list[Timer] = []
        # The checks under way, by the number of their timer.
        self._checks: dict[int, asyncio.Future[None]] = {}
        self.timed_out = 0

    def start(self, scheduler: Scheduler) -> None:
        """Check until ``stop``."""
        self._repeat(scheduler, self._settings.transaction_check_interval_ms, self.abort_overdue)
        self._repeat(scheduler, EXPIRATION_CHECK_INTERVAL_MS, self.expire_unused)

    def stop(self) -> None:
        for timer in self._timers:
            timer.stop()
        for task in self._checks.values():
            task.cancel()

    def _repeat(self, scheduler: Scheduler, interval_ms: int, check: Callable[[], Awaitable[None]]) -> None:
        number = len(self._timers)

        def ring() -> None:
            timer.start(interval_ms)
            if number not in self._checks:
                task = self._checks[number] = asyncio.ensure_future(self._run(check))
                task.add_done_callback(lambda _: self._checks.pop(number))

        timer = Timer(scheduler, ring)
        timer.start(interval_ms)
        self._timers.append(timer)

    async def _run(self, check: Callable[[], Awaitable[None]]) -> None:
        try:
            await check()
        except Exception:  # the edge of a task: the next time may succeed
            logger.exception("transactions could not be looked after")

    async def abort_overdue(self) -> None:
        """Abort transactions past their timeout, and fence their producers."""
        budget = WorkBudget()
        for transaction in list(self._table.open):
            await budget.visit()
            now = self._now()
            if (
                transaction.state is not TransactionState.ONGOING
                or transaction.pending is not None
                or transaction.deadline_ms >= now.monotonic_ms
            ):
                continue
            logger.warning(
                "the transaction of %r is aborted: it was open for longer than its timeout of %d ms",
                transaction.transactional_id,
                transaction.timeout_ms,
            )
            self.timed_out += 1
            self._endings.start(transaction, transaction.abort(now=now))

    async def expire_unused(self) -> None:
        """Forget ids that no producer has used for ``transactional_id_expiration_ms``."""
        before_ms = self._patient.now_ms() - self._settings.transactional_id_expiration_ms
        budget = WorkBudget()

        def is_unused(transaction: Transaction) -> bool:
            return transaction.updated_at_ms < before_ms and transaction.is_idle

        unused: list[Transaction] = []
        for transaction in list(self._table):
            await budget.visit()
            if is_unused(transaction):
                unused.append(transaction)
            if len(unused) == _EXPIRED_AT_ONCE:
                break
        # Some may have been used since; those that expire can do nothing until the store has answered.
        expired = [transaction for transaction in unused if is_unused(transaction)]
        if not expired:
            return
        for transaction in expired:
            transaction.expire()
        self._groups.table.persist(
            [DeleteTransaction(transactional_id=transaction.transactional_id) for transaction in expired],
            lambda error: self._expired(expired, error),
        )

    def _expired(self, expired: list[Transaction], error: SteleError | None) -> None:
        for transaction in expired:
            if error is None:
                self._table.remove(transaction)
            else:
                transaction.cancel_expiry()
        if error is None:
            logger.info("%d transactional ids expired", len(expired))
