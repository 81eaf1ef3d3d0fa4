"""Commit several transactions as one, with shared storage.

That is one transaction of the database.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from ..cluster.shared_transactions import Decide, SharedTransactionStore, TransactionUpdate, Updated
from ..cluster.transaction_store import TransactionRecord
from ..errors import UnknownProducerMapping
from .joint_commits import Member, check_members, plan_members
from .messages import ProducerIdentity
from .plans import Moment
from .shared_requests import NeedsProducerIds, Result, abort, machine, producer_after, update_of
from .states import TransactionState
from .transaction import Transaction

T = TypeVar("T")


class Coordinator(Protocol):
    """The part of the coordinator that joint commits use."""

    async def fresh_id(self) -> int:
        """Return a producer id that no producer has."""
        ...

    async def update(self, ids: Collection[str], decide: Decide[T]) -> Updated[T]:
        """As that of the store, once no transaction of ``ids`` may be torn."""
        ...

    async def ended(self, updated: Updated[Any], results: Sequence[Result]) -> None:
        """Show readers of this broker what ended."""
        ...


class SharedJointCommits:
    """Implements ``JointCommitService``."""

    def __init__(self, store: SharedTransactionStore, coordinator: Coordinator) -> None:
        self._store = store
        self._coordinator = coordinator

    async def open_ids(self, prefix: str, *, besides: Collection[str]) -> list[str]:
        return [
            record.transactional_id
            for record in await self._store.records()
            if TransactionState(record.state) is TransactionState.ONGOING
            and record.transactional_id.startswith(prefix)
            and record.transactional_id not in besides
        ]

    async def commit(
        self, members: Sequence[Member], *, abandoned: Sequence[str] = ()
    ) -> list[ProducerIdentity]:
        check_members(members)
        fresh_ids: dict[str, int] = {}

        def decide(records: Mapping[str, TransactionRecord], now_ms: int) -> TransactionUpdate[list[Result]]:
            now = Moment(now_ms, now_ms)

            def known(transactional_id: str, producer: ProducerIdentity) -> Transaction:
                if transactional_id not in records:
                    raise UnknownProducerMapping(transactional_id, producer_id=producer.producer_id)
                return machine(records, transactional_id, now)

            exhausted = [
                member.transactional_id
                for member in members
                if member.transactional_id not in fresh_ids
                and known(member.transactional_id, member.producer).is_exhausted
            ]
            exhausted += [
                transactional_id
                for transactional_id in abandoned
                if transactional_id in records
                and transactional_id not in fresh_ids
                and machine(records, transactional_id, now).epochs_may_repeat
            ]
            if exhausted:
                raise NeedsProducerIds(exhausted)
            plans: list[Result] = [
                plan for _, plan in plan_members(members, known=known, fresh_ids=fresh_ids, now=now)
            ]
            aborts = [
                abort(machine(records, transactional_id, now), fresh_ids.get(transactional_id), now)
                for transactional_id in abandoned
                if transactional_id in records
            ]
            return update_of(plans, [*plans, *aborts])

        ids = {member.transactional_id for member in members}
        while True:
            try:
                updated = await self._coordinator.update({*ids, *abandoned}, decide)
                break
            except NeedsProducerIds as error:
                for transactional_id in error.ids:
                    fresh_ids[transactional_id] = await self._coordinator.fresh_id()
        await self._coordinator.ended(updated, updated.result)
        return [producer_after(plan) for plan in updated.result]
