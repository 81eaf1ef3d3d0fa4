"""Offsets that a producer commits within its transaction (KIP-98).

They are staged, then committed or dropped.

The transaction coordinator above the groups decides when a transaction ends, and
writes that to the same store. Here are no transactions, only the pending offsets of
producers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from ..cluster.group_store import EndPendingOffsets
from ..errors import IllegalGeneration, StaleMemberEpoch
from .base.checks import check_group_id
from .base.messages import CommitRequest, OffsetsOfTransaction, Results, StagedGroup
from .base.pending_offsets import Key
from .table import GroupTable


class TransactionalOffsets:
    """Stages offsets in the groups of ``table``, and ends them."""

    def __init__(self, table: GroupTable) -> None:
        self._table = table

    def stage(
        self, request: CommitRequest, *, producer_id: int, producer_epoch: int
    ) -> asyncio.Future[Results]:
        """Keep offsets that are committed when the transaction of a producer is.

        Completes when they are durable as pending offsets. The caller has checked that the transaction
        is open, and ends it by ``end``. A later offset of the same producer for a partition replaces an
        earlier one, and a plain commit after it wins over it.

        The results are those of ``GroupCoordinator.commit``.

        Raises, at once or from the future:
            InvalidGroupId, TooManyGroups: as ``GroupCoordinator.join``.
            UnknownMember, FencedInstance, IllegalGeneration: the request names a member, a generation or an
                instance, and it is not the current one (KIP-447).
            GroupStoreFailed: nothing was kept; try again.
        """
        self._table.check_open()
        check_group_id(request.group)
        if request.generation >= 0 and request.group not in self._table.groups:
            raise IllegalGeneration(request.group, request.generation, current_generation=0)
        live = self._table.existing_or_new(request.group)
        try:
            live.check_commit(request, is_transactional=True)
        except StaleMemberEpoch as error:
            # The requests of transactions know generations only (KIP-447).
            raise IllegalGeneration(
                request.group, request.generation, current_generation=error.current_epoch
            ) from error
        future = live.offsets.stage(request, producer_id=producer_id, producer_epoch=producer_epoch)
        self._table.keep(live)
        return future

    def end(self, producer_id: int, *, commit: bool) -> OffsetsOfTransaction:
        """Return how to commit or drop the pending offsets of a producer; changes nothing yet.

        They include offsets that were staged before and are on their way to the store.
        """
        return OffsetsOfTransaction(
            changes=[EndPendingOffsets(producer_id=producer_id, is_committed=commit)],
            apply=lambda: self._table.end_transaction(producer_id, is_committed=commit),
        )

    def producers(self, group: str, partitions: Iterable[Key]) -> set[int]:
        """Return the producers that have pending offsets in any of ``partitions``.

        A partition is a topic and a number.
        """
        live = self._table.groups.get(group)
        if live is None:
            return set()
        return {pending.producer_id for key in partitions for pending in live.offsets.pending.of(key)}

    def staged_groups(self) -> list[StagedGroup]:
        """Return the groups that have pending offsets, for each producer.

        After a start these are of transactions that have no outcome in the store.
        """
        return [
            StagedGroup(producer_id=producer_id, producer_epoch=epoch, group=offsets.group)
            for producer_id, groups in self._table.pending_producers.groups().items()
            for offsets in groups
            if (epoch := offsets.pending.epoch_of(producer_id)) is not None
        ]
