"""The committed offsets of one group, durable or on their way to the store.

The rules of a single offset are in ``offset_rules``, those of offsets that a transaction
commits in ``pending_offsets``; ``offset_retention`` drops expired ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from uuid import UUID

from ...cluster.group_store import DeleteOffset, GroupChange, OffsetRecord, PendingOffset
from ...errors import SteleError, UnstableOffset
from ...work_budget import Pace, Steps, at_once, sorted_in_steps
from .context import GroupContext
from .messages import CommitRequest, CommittedOffset, Results
from .offset_rules import offset_records, topic_id_of
from .parking import answer
from .pending_offsets import Key, PendingOffsets
from .tally import Tally

# To look one up takes about 2 µs.
_PIECES_OF_OFFSET = 2


def records_of(context: GroupContext, request: CommitRequest) -> Steps[tuple[list[OffsetRecord], Results]]:
    """Return the records to store for a commit, and per offset None or its error."""
    return offset_records(
        request,
        topic=context.topic,
        now_ms=context.now_ms(),
        metadata_bytes_max=context.settings.offset_metadata_bytes_max,
    )


class GroupOffsets:
    """``records`` are the durable committed offsets, by topic and partition.

    ``pending`` are the durable offsets of open transactions.
    """

    def __init__(self, group: str, context: GroupContext) -> None:
        self.group = group
        self.pending = PendingOffsets()
        self._context = context
        self._records: dict[Key, OffsetRecord] = {}
        self._writes = 0
        # How many pending offsets of each partition are on their way to the store.
        self._staging: Tally[Key] = Tally()

    @property
    def records(self) -> Mapping[Key, OffsetRecord]:
        return self._records

    @property
    def is_being_written(self) -> bool:
        """True while commits are on their way to the store; they may replace durable ones."""
        return self._writes > 0

    @property
    def is_empty(self) -> bool:
        return not (self._records or self._writes or self.pending)

    def is_unstable(self, key: Key) -> bool:
        """True if the end of a transaction may replace a partition's committed offset."""
        return key in self.pending or key in self._staging

    def restore(self, record: OffsetRecord) -> None:
        """Add an offset from the store."""
        self._records[record.topic, record.partition] = record

    def restore_pending(self, pending: PendingOffset) -> None:
        """Add a pending offset from the store."""
        self.pending.add(pending)
        self._context.pending_producers.note(pending.producer_id, self)

    def commit(self, request: CommitRequest) -> asyncio.Future[Results]:
        """Keep the offsets of a checked request. Completes when they are durable.

        The results are in the order of ``request.offsets``: None, or the error of that offset.
        Raises ``GroupStoreFailed`` from the future: nothing was kept.
        """
        records, results = self._records_of(request)
        by_key = {(record.topic, record.partition): record for record in records}

        def kept(error: SteleError | None) -> None:
            if error is None:
                # There may be thousands, and all of them are seen together.
                self._records.update(by_key)
                for key in by_key if self.pending else ():
                    self.pending.drop(key)

        return self._keep(records, results, kept)

    def stage(
        self, request: CommitRequest, *, producer_id: int, producer_epoch: int
    ) -> asyncio.Future[Results]:
        """Keep the offsets of a checked request as pending ones; otherwise as ``commit``."""
        records, results = self._records_of(request)
        pending = [
            PendingOffset(producer_id=producer_id, producer_epoch=producer_epoch, record=record)
            for record in records
        ]
        keys = [(record.topic, record.partition) for record in records]
        self._staging.add(keys)

        def staged(error: SteleError | None) -> None:
            self._staging.take(keys)
            if error is None and pending:
                # There may be thousands, all of one producer.
                for offset in pending:
                    self.pending.add(offset)
                self._context.pending_producers.note(producer_id, self)

        return self._keep(pending, results, staged)

    def _records_of(self, request: CommitRequest) -> tuple[list[OffsetRecord], Results]:
        checked = request.checked
        if checked is not None:
            topics = {record.topic: record.topic_id for record in checked[0]}
            if all(topic_id_of(self._context.topic, name) == its_id for name, its_id in topics.items()):
                return checked
        return at_once(records_of(self._context, request))

    def _keep(
        self, changes: Sequence[GroupChange], results: Results, done: Callable[[SteleError | None], None]
    ) -> asyncio.Future[Results]:
        """Write ``changes``, call ``done``, and complete with ``results``.

        ``GroupContext.persist`` describes ``done``.
        """
        future: asyncio.Future[Results] = asyncio.get_running_loop().create_future()
        if not changes:
            future.set_result(results)
            return future
        self._writes += 1

        def written(error: SteleError | None) -> None:
            self._writes -= 1
            done(error)
            answer(future, results if error is None else error)

        self._context.persist(changes, written)
        return future

    def end_transaction(self, producer_id: int, *, is_committed: bool) -> list[OffsetRecord]:
        """End the transaction of a producer, as the store has; returns the offsets that are committed now."""
        committed = self.pending.end(producer_id, is_committed=is_committed)
        for record in committed:
            self.restore(record)
        return committed

    def committed(
        self, partitions: Iterable[Key] | None, *, require_stable: bool = False
    ) -> Steps[list[CommittedOffset]]:
        """Return the offsets of ``partitions`` (topic, number), in their order; None: all, sorted.

        All are those of the first step. With ``require_stable`` an offset that an open transaction may replace is an
        error.
        """
        records, is_unstable, pace = self._records, self.is_unstable, Pace()
        offsets: list[CommittedOffset] = []
        is_named = partitions is not None
        if partitions is None:
            unstable = frozenset((*self.pending.keys, *self._staging)) if require_stable else frozenset[Key]()
            records, is_unstable = records.copy(), unstable.__contains__
            partitions = yield from sorted_in_steps([*(records.keys() | unstable)], lambda key: key)
        for topic, partition in partitions:
            if pace.is_due(_PIECES_OF_OFFSET):
                if records is self._records:
                    records = records.copy()
                    is_unstable = frozenset((*self.pending.keys, *self._staging)).__contains__
                yield
            if require_stable and is_unstable((topic, partition)):
                error = UnstableOffset(topic, partition)
                offsets.append(CommittedOffset(topic=topic, partition=partition, error=error))
                continue
            record = records.get((topic, partition))
            if record is not None and topic_id_of(self._context.topic, topic) == record.topic_id:
                offsets.append(
                    CommittedOffset(
                        topic=topic,
                        partition=partition,
                        offset=record.offset,
                        leader_epoch=record.leader_epoch,
                        metadata=record.metadata,
                    )
                )
            elif is_named:
                offsets.append(CommittedOffset(topic=topic, partition=partition))
        return offsets

    def delete(self, keys: Collection[Key], results: Results) -> asyncio.Future[Results]:
        """Delete the offsets of ``keys``, also pending ones.

        Completes with ``results`` when that is durable.
        """
        future: asyncio.Future[Results] = asyncio.get_running_loop().create_future()

        def deleted(error: SteleError | None) -> None:
            if error is None:
                for key in keys:
                    self._records.pop(key, None)
                for key in keys if self.pending else ():
                    self.pending.drop(key)
            answer(future, results if error is None else error)

        self._context.persist(
            [DeleteOffset(group=self.group, topic=topic, partition=partition) for topic, partition in keys],
            deleted,
        )
        return future

    def forget_topic(self, topic: str, current_id: UUID | None) -> None:
        """Forget the offsets of ``topic``, which the store has deleted.

        Those of the topic id ``current_id`` are kept.
        """
        for key in [
            key for key, record in self._records.items() if key[0] == topic and record.topic_id != current_id
        ]:
            del self._records[key]
        self.pending.forget_topic(topic, current_id)
