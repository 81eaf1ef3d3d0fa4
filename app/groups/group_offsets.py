"""The committed offsets of one group: those that are durable, and those on their way to the store.

The rules of a single offset are in ``offsets``; ``offset_retention`` drops expired
ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from uuid import UUID

from ..cluster.group_store import DeleteOffset, OffsetRecord
from ..errors import SteleError
from .group_context import GroupContext
from .messages import CommitRequest, CommittedOffset, Results
from .offsets import offset_records, topic_id_of
from .parking import answer


class GroupOffsets:
    """``records`` are the durable ones, by topic and partition."""

    def __init__(self, group: str, context: GroupContext) -> None:
        self._group = group
        self._context = context
        self._records: dict[tuple[str, int], OffsetRecord] = {}
        self._writes = 0

    @property
    def records(self) -> Mapping[tuple[str, int], OffsetRecord]:
        return self._records

    @property
    def is_being_written(self) -> bool:
        """True while commits are on their way to the store; they may replace durable ones."""
        return self._writes > 0

    @property
    def is_empty(self) -> bool:
        return not (self._records or self._writes)

    def restore(self, record: OffsetRecord) -> None:
        """Add an offset from the store."""
        self._records[record.topic, record.partition] = record

    def commit(self, request: CommitRequest) -> asyncio.Future[Results]:
        """Keep the offsets of a checked request. Completes when they are durable.

        The results are in the order of ``request.offsets``: None, or the error of that offset.
        Raises ``GroupStoreFailed`` from the future: nothing was kept.
        """
        records, results = offset_records(
            request,
            topic=self._context.topic,
            now_ms=self._context.now_ms(),
            metadata_bytes_max=self._context.settings.offset_metadata_bytes_max,
        )
        future: asyncio.Future[Results] = asyncio.get_running_loop().create_future()
        if not records:
            future.set_result(results)
            return future
        self._writes += 1

        def kept(error: SteleError | None) -> None:
            self._writes -= 1
            if error is None:
                self._records.update({(record.topic, record.partition): record for record in records})
            answer(future, results if error is None else error)

        self._context.persist(records, kept)
        return future

    def committed(self, partitions: Iterable[tuple[str, int]] | None) -> list[CommittedOffset]:
        """Return the offsets of ``partitions`` (topic, number), in their order; None: all, sorted."""
        offsets: list[CommittedOffset] = []
        for topic, partition in sorted(self._records) if partitions is None else partitions:
            record = self._records.get((topic, partition))
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
            elif partitions is not None:
                offsets.append(CommittedOffset(topic=topic, partition=partition))
        return offsets

    def delete(self, keys: Collection[tuple[str, int]], results: Results) -> asyncio.Future[Results]:
        """Delete the offsets of ``keys``. Completes with ``results`` when that is durable."""
        future: asyncio.Future[Results] = asyncio.get_running_loop().create_future()

        def deleted(error: SteleError | None) -> None:
            if error is None:
                for key in keys:
                    self._records.pop(key, None)
            answer(future, results if error is None else error)

        self._context.persist(
            [DeleteOffset(group=self._group, topic=topic, partition=partition) for topic, partition in keys],
            deleted,
        )
        return future

    def forget_topic(self, topic: str, current_id: UUID | None) -> None:
        """Forget the offsets of ``topic``, which the store has deleted, except those of the id ``current_id``."""
        for key in [
            key for key, record in self._records.items() if key[0] == topic and record.topic_id != current_id
        ]:
            del self._records[key]
