"""Commit several transactions as one: readers see what all of them wrote, or nothing (ADR-0037).

Writers that share a unit of work, such as the tasks of a micro-batch, write in a transaction each. A
writer that fails, or is started twice, so leaves nothing in the others' transactions. The writers'
coordinator, such as the driver of a Spark query, commits those that count, and abandons the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..broker.broker import Broker
from ..errors import InvalidRequest, InvalidTransactionState, SteleError
from .endings import Endings
from .messages import ProducerIdentity
from .plans import EndPlan, Moment, StorePlan
from .states import TransactionState
from .table import TransactionTable
from .transaction import Transaction

# A member per task of a micro-batch. Each is a few changes in one transaction of the store.
MEMBERS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Member:
    """A transaction to commit, and the producer that wrote it."""

    transactional_id: str
    producer: ProducerIdentity


def check_members(members: Sequence[Member]) -> None:
    """Raises ``InvalidRequest``: an id occurs twice, or there are too many."""
    if len(members) > MEMBERS_MAX:
        raise InvalidRequest(
            f"{len(members)} transactions are to be committed together; at most {MEMBERS_MAX} can be"
        )
    if len({member.transactional_id for member in members}) < len(members):
        raise InvalidRequest("a transactional id occurs twice; name each transaction once")


def plan_members(
    members: Sequence[Member],
    *,
    known: Callable[[str, ProducerIdentity], Transaction],
    fresh_ids: Mapping[str, int],
    now: Moment,
) -> list[tuple[Transaction, ProducerIdentity | EndPlan]]:
    """Plan to commit all members, or none.

    ``known`` finds the machine of an id, ``fresh_ids`` has producer ids for those that are exhausted.
    Raises as ``JointCommitService.commit``.
    """
    planned: list[tuple[Transaction, ProducerIdentity | StorePlan | EndPlan]] = []
    try:
        for member in members:
            transaction = known(member.transactional_id, member.producer)
            plan = transaction.end(
                member.producer,
                commit=True,
                bumps_epoch=True,
                fresh_id=fresh_ids.get(member.transactional_id),
                now=now,
            )
            planned.append((transaction, plan))
        repeated = [transaction for transaction, plan in planned if isinstance(plan, ProducerIdentity)]
        if repeated and len(repeated) < len(members):
            raise InvalidTransactionState(
                repeated[0].transactional_id,
                "it was committed before, and others of the same request were not",
            )
    except SteleError:
        for transaction, plan in planned:
            if not isinstance(plan, ProducerIdentity):
                transaction.cancel(plan)
        raise
    # Only an abort can plan to store nothing but the next epoch.
    return [(transaction, plan) for transaction, plan in planned if not isinstance(plan, StorePlan)]


class JointCommitService(Protocol):
    """The interface of joint commits for listeners: several transactions as one."""

    async def open_ids(self, prefix: str, *, besides: Collection[str]) -> list[str]:
        """Return ids with ``prefix`` that have an open transaction that is not ending."""
        ...

    async def commit(
        self, members: Sequence[Member], *, abandoned: Sequence[str] = ()
    ) -> list[ProducerIdentity]:
        """Commit all transactions, or none; return what each producer continues with.

        The open transactions of the ids ``abandoned`` are aborted and their producers fenced, in the same
        step. A repeated call is answered as the first. Epochs rise, as with EndTxn v5.

        Raises:
            InvalidRequest: an id occurs twice, or there are too many.
            InvalidTransactionState: a member has nothing to commit; nothing was committed.
            UnknownProducerMapping, TransactionFenced: a member is not the current producer of its id, because
                its transaction took too long or another producer has begun; nothing was committed.
            ConcurrentTransactions: try again.
            StorageError: as ``TransactionService.end``.
        """
        ...


class JointCommits:
    """Implements ``JointCommitService`` on one broker.

    ``known`` finds an id's machine, or raises like ``TransactionCoordinator.end``.
    """

    def __init__(
        self,
        *,
        broker: Broker,
        table: TransactionTable,
        endings: Endings,
        known: Callable[[str, ProducerIdentity], Transaction],
        now: Callable[[], Moment],
    ) -> None:
        self._broker = broker
        self._table = table
        self._endings = endings
        self._known = known
        self._now = now

    async def open_ids(self, prefix: str, *, besides: Collection[str]) -> list[str]:
        return [
            transaction.transactional_id
            for transaction in self._table.open
            if transaction.state is TransactionState.ONGOING
            and transaction.transactional_id.startswith(prefix)
            and transaction.transactional_id not in besides
        ]

    async def commit(
        self, members: Sequence[Member], *, abandoned: Sequence[str] = ()
    ) -> list[ProducerIdentity]:
        """See ``JointCommitService``.

        A transaction to abandon that has something on its way to the store is left to its timeout.
        """
        check_members(members)
        fresh_ids: dict[str, int] = {}
        while exhausted := [
            member.transactional_id
            for member in members
            if self._known(member.transactional_id, member.producer).is_exhausted
            and member.transactional_id not in fresh_ids
        ]:
            for transactional_id in exhausted:
                fresh_ids[transactional_id], _ = await self._broker.init_producer_id()
        # From here to the start of the end, nothing else runs.
        planned = plan_members(members, known=self._known, fresh_ids=fresh_ids, now=self._now())
        return await self._settle(planned, abandoned)

    async def _settle(
        self,
        planned: Sequence[tuple[Transaction, ProducerIdentity | EndPlan]],
        abandoned: Sequence[str],
    ) -> list[ProducerIdentity]:
        plans = [(transaction, plan) for transaction, plan in planned if isinstance(plan, EndPlan)]
        members = len(plans)
        for transactional_id in abandoned:
            transaction = self._table.find(transactional_id)
            if (
                transaction is not None
                and transaction.state is TransactionState.ONGOING
                and transaction.pending is None
            ):
                plans.append((transaction, transaction.abort(now=self._now())))
        if not plans:
            return [plan for _, plan in planned if isinstance(plan, ProducerIdentity)]
        ended = await asyncio.gather(*self._endings.start_together(plans))
        if not members:
            return [plan for _, plan in planned if isinstance(plan, ProducerIdentity)]
        return ended[:members]
