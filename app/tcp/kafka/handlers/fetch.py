"""Fetch: batches as they lie on the disk, with a long poll that the append ends.

There are no fetch sessions: every answer says session 0, which tells a client to
name all its partitions each time (KIP-227). One that goes on with a session it got
elsewhere names only what changed, so it is told to begin anew. There are no transactions either, so
the last stable offset is the high watermark and nothing is ever aborted.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from stele.wire.error_codes import ErrorCode
from stele.wire.record_batch import CorruptBatchError

from ....broker.broker import Broker
from ....broker.fetch import Fetched, PartitionFetch
from ....errors import SteleError
from ...errors import error_code_of
from ..message_set import MessageSetTooLarge, UnsupportedCodec, down_convert
from ..schemas.fetch import FetchableTopicResponse, FetchPartition, FetchRequest, FetchResponse, PartitionData
from .context import Context, find_topic
from .leader_epoch import check_leader_epoch

_NO_OFFSET = -1
# Session epochs of a request that names all its partitions, whatever session it is done with.
_NO_SESSION, _NEW_SESSION = -1, 0
# Fetch v0 and v1 know messages of magic 0, v2 and v3 of magic 1 (KIP-31).
_FIRST_WITH_BATCHES = 4
_FIRST_WITH_MAGIC_1 = 2
_FIRST_WITH_TOPIC_IDS = 13


@dataclass(slots=True)
class _Place:
    """Where in the answer a partition stands; ``code`` if it is refused before it is looked at."""

    topic: int
    index: int
    request: FetchPartition
    code: ErrorCode = ErrorCode.NONE


def answer_bytes_max(broker: Broker, request: FetchRequest) -> int:
    """What the answer may bring."""
    return max(0, min(request.max_bytes, broker.settings.fetch_bytes_max))


async def fetch(context: Context, request: FetchRequest) -> FetchResponse:
    if request.session_epoch not in (_NO_SESSION, _NEW_SESSION):
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=())
    answers = [
        FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=[])
        for topic in request.topics
    ]
    places: list[_Place] = []
    wanted: list[PartitionFetch] = []
    refused = False
    for number, topic in enumerate(request.topics):
        name, code = topic.topic, ErrorCode.NONE
        try:
            asked = None if context.version >= _FIRST_WITH_TOPIC_IDS else topic.topic
            name = find_topic(context, asked, topic.topic_id).name
        except SteleError as error:
            code = error_code_of(error)
        for one in topic.partitions:
            place = _Place(number, one.partition, one, code)
            if not code:
                place.code = check_leader_epoch(context.broker, name, one.partition, one.current_leader_epoch)
            places.append(place)
            if place.code:
                refused = True
            else:
                wanted.append(
                    PartitionFetch(
                        topic=name,
                        partition=one.partition,
                        offset=one.fetch_offset,
                        max_bytes=max(0, one.partition_max_bytes),
                    )
                )
    fetched = iter(
        await context.broker.fetch(
            wanted,
            max_bytes=max(0, request.max_bytes),
            min_bytes=max(0, request.min_bytes),
            # What is refused is told at once.
            max_wait_ms=0 if refused else max(0, request.max_wait_ms),
        )
    )
    for place in places:
        partitions = answers[place.topic].partitions
        assert isinstance(partitions, list)
        if place.code:
            partitions.append(_refused(place.index, place.code))
        else:
            one = next(fetched)
            if context.version < _FIRST_WITH_BATCHES:
                one, code = await _as_message_set(context, one, place.request.fetch_offset)
                partitions.append(_refused(place.index, code) if code else _found(one))
            else:
                partitions.append(_found(one))
    return FetchResponse(responses=answers)


def _found(one: Fetched) -> PartitionData:
    return PartitionData(
        partition_index=one.partition,
        error_code=ErrorCode.NONE if one.error is None else error_code_of(one.error),
        high_watermark=one.high_watermark,
        last_stable_offset=one.high_watermark,
        log_start_offset=one.log_start_offset,
        aborted_transactions=None,
        records=one.batches,
    )


def _refused(index: int, code: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=_NO_OFFSET,
        aborted_transactions=None,
        records=b"",
    )


async def _as_message_set(context: Context, one: Fetched, offset: int) -> tuple[Fetched, ErrorCode]:
    if not one.batches:
        return one, ErrorCode.NONE
    magic = 1 if context.version >= _FIRST_WITH_MAGIC_1 else 0
    try:
        # Records are decoded and encoded again: not on the loop that serves everybody.
        converted = await asyncio.to_thread(
            down_convert, one.batches, magic=magic, from_offset=offset, max_bytes=len(one.batches)
        )
    except UnsupportedCodec:
        return one, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    except MessageSetTooLarge:
        return one, ErrorCode.MESSAGE_TOO_LARGE
    except CorruptBatchError:
        return one, ErrorCode.CORRUPT_MESSAGE
    return replace(one, batches=converted), ErrorCode.NONE
