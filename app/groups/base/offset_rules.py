"""Rules of committed offsets: what is accepted, and when they are dropped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol
from uuid import UUID

from ...broker.topics import Topic
from ...cluster.group_store import OffsetRecord
from ...errors import InvalidRequest, OffsetMetadataTooLarge, SteleError, TopicError, UnknownPartition
from ...work_budget import Pace, Steps
from .checks import text_size
from .messages import CommitRequest, OffsetToCommit, Results
from .states import GroupState

# To check one takes about 2 µs.
_PIECES_OF_OFFSET = 2
_INT64_MAX = 2**63 - 1
_INT32_MAX = 2**31 - 1


def offset_record(
    group: str,
    requested: OffsetToCommit,
    *,
    topic: Callable[[str], Topic],
    now_ms: int,
    metadata_bytes_max: int,
) -> OffsetRecord:
    """Check an offset to commit, and return its record for the store.

    Raises:
        UnknownTopic, UnknownPartition, InvalidTopicName: the partition does not exist.
        OffsetMetadataTooLarge: the metadata has more than ``metadata_bytes_max`` bytes of UTF-8.
        InvalidRequest: the offset has more than 64 bits.
    """
    current = topic(requested.topic)
    if not 0 <= requested.partition < current.partitions:
        raise UnknownPartition(requested.topic, requested.partition, partitions=current.partitions)
    # Negative offsets have a meaning to clients: KafkaJS commits -2, the earliest, when its position was deleted.
    if not -_INT64_MAX <= requested.offset <= _INT64_MAX:
        raise InvalidRequest(f"offset {requested.offset} cannot be committed; it has more than 64 bits")
    metadata = requested.metadata or ""
    size = text_size(metadata, "metadata")
    if size > metadata_bytes_max:
        raise OffsetMetadataTooLarge(group, size, limit=metadata_bytes_max)
    expires_at_ms = None
    if requested.retention_ms is not None and requested.retention_ms >= 0:
        expires_at_ms = min(now_ms + requested.retention_ms, _INT64_MAX)
    return OffsetRecord(
        group=group,
        topic=requested.topic,
        topic_id=current.topic_id,
        partition=requested.partition,
        offset=requested.offset,
        leader_epoch=max(-1, min(requested.leader_epoch, _INT32_MAX)),
        metadata=metadata,
        committed_at_ms=now_ms,
        expires_at_ms=expires_at_ms,
    )


def offset_records(
    request: CommitRequest, *, topic: Callable[[str], Topic], now_ms: int, metadata_bytes_max: int
) -> Steps[tuple[list[OffsetRecord], Results]]:
    """Return the records to store, and per offset of ``request`` None or its error."""
    records: list[OffsetRecord] = []
    results: Results = []
    pace = Pace()
    for requested in request.offsets:
        if pace.is_due(_PIECES_OF_OFFSET):
            yield
        try:
            record = offset_record(
                request.group,
                requested,
                topic=topic,
                now_ms=now_ms,
                metadata_bytes_max=metadata_bytes_max,
            )
        except SteleError as error:
            results.append(error)
        else:
            records.append(record)
            results.append(None)
    return records, results


class GroupAge(Protocol):
    """Ages of a group for the retention of offsets; times in ms since the Unix epoch."""

    @property
    def state(self) -> GroupState: ...
    @property
    def emptied_at_ms(self) -> int | None: ...


def is_due(record: OffsetRecord, group: GroupAge, *, now_ms: int, retention_ms: int) -> bool:
    """True if the retention of ``record`` is over.

    An offset does not expire while the group has members, or rebalances. After that it
    expires ``retention_ms`` after the group became empty or after the commit, whichever
    was later; in a group that never had members, after the commit. A commit with a
    retention of its own expires by that alone.
    """
    if group.state is not GroupState.EMPTY:
        return False
    if record.expires_at_ms is not None:
        return now_ms >= record.expires_at_ms
    return now_ms - max(record.committed_at_ms, group.emptied_at_ms or 0) >= retention_ms


def topic_id_of(topic: Callable[[str], Topic], name: str) -> UUID | None:
    """Return the id of the topic that has this name now; None if there is none."""
    try:
        return topic(name).topic_id
    except TopicError:
        return None
