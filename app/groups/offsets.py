"""Rules of committed offsets: what is accepted, and when they are dropped."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from ..broker.topics import Topic
from ..cluster.group_store import OffsetRecord
from ..errors import InvalidRequest, OffsetMetadataTooLarge, SteleError, TopicError, UnknownPartition
from .checks import text_size
from .group import Group
from .group_states import GroupState
from .messages import CommitRequest, OffsetToCommit, Results

_INT64_MAX = 2**63 - 1
_INT32_MAX = 2**31 - 1


def offset_record(
    group: str,
    asked: OffsetToCommit,
    *,
    topic: Callable[[str], Topic],
    now_ms: int,
    metadata_bytes_max: int,
) -> OffsetRecord:
    """What will be kept.

    Raises:
        UnknownTopic, UnknownPartition, InvalidTopicName: there is no such partition.
        OffsetMetadataTooLarge: more than ``metadata_bytes_max`` bytes of UTF-8.
        InvalidRequest: an offset that is no 64-bit number.
    """
    found = topic(asked.topic)
    if not 0 <= asked.partition < found.partitions:
        raise UnknownPartition(asked.topic, asked.partition, partitions=found.partitions)
    # Below 0 it is a client's own word: KafkaJS commits -2, the earliest, when its position was deleted.
    if not -_INT64_MAX <= asked.offset <= _INT64_MAX:
        raise InvalidRequest(f"offset {asked.offset} cannot be committed; it has more than 64 bits")
    metadata = asked.metadata or ""
    size = text_size(metadata, "metadata")
    if size > metadata_bytes_max:
        raise OffsetMetadataTooLarge(group, size, limit=metadata_bytes_max)
    expires_at_ms = None
    if asked.retention_ms is not None and asked.retention_ms >= 0:
        expires_at_ms = min(now_ms + asked.retention_ms, _INT64_MAX)
    return OffsetRecord(
        group=group,
        topic=asked.topic,
        topic_id=found.topic_id,
        partition=asked.partition,
        offset=asked.offset,
        leader_epoch=max(-1, min(asked.leader_epoch, _INT32_MAX)),
        metadata=metadata,
        committed_at_ms=now_ms,
        expires_at_ms=expires_at_ms,
    )


def offset_records(
    request: CommitRequest, *, topic: Callable[[str], Topic], now_ms: int, metadata_bytes_max: int
) -> tuple[list[OffsetRecord], Results]:
    """What will be kept, and for each offset of ``request`` None or why it is not."""
    records: list[OffsetRecord] = []
    results: Results = []
    for asked in request.offsets:
        try:
            record = offset_record(
                request.group,
                asked,
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


def is_due(record: OffsetRecord, group: Group, *, now_ms: int, retention_ms: int) -> bool:
    """True when ``record`` may be dropped.

    Never while the group has members, or some are on their way in. After that,
    ``retention_ms`` after the group became empty or after the commit, whichever
    was later; for a group that nobody ever joined, after the commit. A commit
    that came with a retention of its own has its own end.
    """
    if group.state is not GroupState.EMPTY:
        return False
    if record.expires_at_ms is not None:
        return now_ms >= record.expires_at_ms
    return now_ms - max(record.committed_at_ms, group.emptied_at_ms or 0) >= retention_ms


def topic_id_of(topic: Callable[[str], Topic], name: str) -> UUID | None:
    """The id of the topic of that name as it is now."""
    try:
        return topic(name).topic_id
    except TopicError:
        return None
