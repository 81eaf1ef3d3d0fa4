"""Fetch: batches as on disk, with a long poll that ends with an append.

A request without a session names all its partitions, and the response has all of
them. In a fetch session (KIP-227, ``fetch_sessions``) the handler looks only at
partitions that may have changed, and the response has only those that have.

The handler pauses among the partitions. A session belongs to one request at a time: as soon as the next one
has begun, the response of the one before notes nothing more.

A consumer with a rack is sent to a broker of its rack (KIP-392), which serves it as any other would: the answer
for a partition then has the id of that broker and no records.

With READ_COMMITTED the response ends before the last stable offset, and names the aborted
transactions whose batches it contains: the client leaves these out. The isolation level is that of
each request, also in a session.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from typing import Any

from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.fetch import FETCH_API, FetchRequest, FetchResponse

from ....broker.broker import Broker
from ....broker.reading.fetch import bytes_of, needs_more
from ....security.acl import READ_TOPIC
from ....work_budget import in_turns
from ..context import Context
from ..fetching.idle_reading import IdleReading, idle_reading
from ..fetching.leader_epochs import find_leader_epochs
from ..fetching.looks import may_read
from ..fetching.old_clients import FIRST_WITH_BATCHES, make_message_set, pass_over
from ..fetching.quick_look import QuickReading, quick_look
from ..fetching.reading import SessionReading, WholeReading, read_until
from ..fetching.requests import (
    FIRST_WITH_TOPIC_IDS,
    answer_bytes_max,
    forgotten,
    is_from_follower,
    isolation_of,
    owned,
    requested,
)
from ..guards.topics import FETCH
from ..served import Served
from ..sessions.fetch_sessions import FINAL_EPOCH, NO_SESSION_ID, FetchSession


def fetch(context: Context, request: FetchRequest) -> FetchResponse | Coroutine[Any, Any, FetchResponse]:
    """Answer at once if a first look at the log suffices."""
    broker = context.broker
    if broker.quotas.is_active and context.consume_wait_ms():
        return _fetch(context, owned(request))
    bytes_max = broker.unread.bytes_of_fetch(request.max_bytes)
    if request.session_epoch != FINAL_EPOCH:
        return _fetch_in_session(context, request, bytes_max) or _fetch(context, owned(request))
    quick = None if request.session_id else quick_look(context, request, bytes_max)
    if quick is None:
        return _fetch(context, owned(request))
    if request.max_wait_ms > 0 and needs_more(quick.wanted, quick.reads, min(request.min_bytes, bytes_max)):
        return _fetch_more(context, request, quick)
    broker.counts.fetched_bytes += bytes_of(quick.reads)
    return FetchResponse(responses=quick.responses())


async def _fetch_more(context: Context, request: FetchRequest, quick: QuickReading) -> FetchResponse:
    broker = context.broker
    _, reads = await read_until(broker, request, quick, _deadline_ms(broker, request), quick.reads)
    broker.counts.fetched_bytes += bytes_of(reads)
    quick.reads = reads
    return FetchResponse(responses=quick.checked_responses())


def _fetch_in_session(context: Context, request: FetchRequest, bytes_max: int) -> FetchResponse | None:
    """Answer a request of a session that names one partition, which has records while no other has news."""
    broker, sessions = context.broker, context.listener.fetch_sessions
    uses_topic_ids = context.version >= FIRST_WITH_TOPIC_IDS
    session = sessions.find(request.session_id, request.session_epoch, uses_topic_ids=uses_topic_ids)
    if (
        session is None
        or len(request.topics) != 1
        or len(request.topics[0].partitions) != 1
        or request.forgotten_topics_data
        or session.watch.isolation is not isolation_of(request)
        or sessions.is_over_full
    ):
        return None
    quick = quick_look(context, request, bytes_max)
    if quick is None or not bytes_of(quick.reads):
        return None
    (topic,), (wanted,), (read,) = request.topics, quick.wanted, quick.reads
    key = (topic.topic_id if uses_topic_ids else wanted.topic), wanted.partition
    if not session.has_news_only_of(key, wanted.topic):
        return None
    if request.max_wait_ms > 0 and needs_more(quick.wanted, quick.reads, min(request.min_bytes, bytes_max)):
        return None
    sessions.use(
        session,
        key,
        offset=wanted.offset,
        max_bytes=wanted.max_bytes,
        leader_epoch=topic.partitions[0].current_leader_epoch,
        now_ms=broker.monotonic_ms(),
    )
    session.settle(
        session.partition(key),
        has_records=True,
        is_error=False,
        high_watermark=read.high_watermark,
        log_start_offset=read.log_start_offset,
    )
    broker.counts.fetched_bytes += len(read.batches)
    return FetchResponse(session_id=session.id, responses=quick.responses())


def _deadline_ms(broker: Broker, request: FetchRequest) -> int:
    return broker.monotonic_ms() + min(max(0, request.max_wait_ms), broker.settings.fetch_wait_ms_max)


async def _fetch(context: Context, request: FetchRequest) -> FetchResponse:
    broker, sessions = context.broker, context.listener.fetch_sessions
    deadline_ms = _deadline_ms(broker, request)
    if (idle := idle_reading(context, request)) is not None:
        with idle:
            return _too_early(context, None) or await _fetch_all(context, request, idle, deadline_ms)
    uses_topic_ids = context.version >= FIRST_WITH_TOPIC_IDS
    if broker.cluster.is_shared:
        await broker.try_to_find_topics(partitions=_named(context, request))
    named = await in_turns(requested(context, request))
    access = context.access
    await find_leader_epochs(
        broker,
        (
            (one.topic, one.index, one.leader_epoch)
            for one in named.values()
            if access is None or may_read(access, one.topic)
        ),
    )
    taken = await in_turns(
        sessions.take(
            session_id=request.session_id,
            epoch=request.session_epoch,
            uses_topic_ids=uses_topic_ids,
            requested=named,
            forgotten=forgotten(request, uses_topic_ids=uses_topic_ids),
            now_ms=broker.monotonic_ms(),
        )
    )
    if taken.error:
        return FetchResponse(error_code=taken.error, responses=())
    # The session has taken the request, so that its epoch goes on.
    if (refusal := _too_early(context, taken.session)) is not None:
        return refusal
    if taken.session is not None:
        return await _fetch_changes(context, request, taken.session, deadline_ms)
    reading = WholeReading(context, request, list(named.values()), begins_session=taken.may_begin)
    response = await _fetch_all(context, request, reading, deadline_ms)
    if taken.may_begin:
        response.session_id = await in_turns(
            sessions.begin(
                named,
                is_privileged=is_from_follower(context, request),
                uses_topic_ids=uses_topic_ids,
                now_ms=broker.monotonic_ms(),
            )
        )
    return response


def _named(context: Context, request: FetchRequest) -> Iterable[tuple[str | bytes, int]]:
    """Return the partitions to look up if they are not known here.

    Of topics that are named these are the ones that the client may read: otherwise the time of a refusal would tell
    whether the topic exists.
    """
    access = context.access
    for topic in request.topics:
        if context.version >= FIRST_WITH_TOPIC_IDS:
            yield from ((bytes(topic.topic_id), partition.partition) for partition in topic.partitions)
        elif access is None or access.allows(READ_TOPIC, topic.topic):
            yield from ((topic.topic, partition.partition) for partition in topic.partitions)


def _too_early(context: Context, session: FetchSession | None) -> FetchResponse | None:
    """Return the response to a client that has to wait by its quota; None if it has not."""
    wait_ms = context.consume_wait_ms()
    if not wait_ms:
        return None
    session_id = NO_SESSION_ID if session is None else session.id
    return FetchResponse(throttle_time_ms=wait_ms, session_id=session_id, responses=())


async def _fetch_all(
    context: Context, request: FetchRequest, reading: WholeReading | IdleReading, deadline_ms: int
) -> FetchResponse:
    broker = context.broker
    while True:
        look, reads = await read_until(broker, request, reading, deadline_ms)
        broker.counts.fetched_bytes += bytes_of(reads)
        answers = await look.answers(broker, reads)
        if context.version < FIRST_WITH_BATCHES:
            for answer in answers:
                await make_message_set(context, answer)
            look.is_stale = True
            if pass_over(look, reads, answers):
                if any(answer.records_size or answer.data.error_code for answer in answers):
                    deadline_ms = 0
                continue
        return FetchResponse(responses=await in_turns(reading.responses(look, answers)))


async def _fetch_changes(
    context: Context, request: FetchRequest, session: FetchSession, deadline_ms: int
) -> FetchResponse:
    """Answer with the partitions of ``session`` that changed."""
    broker, reading = context.broker, SessionReading(context, request, session)
    look, reads = await read_until(broker, request, reading, deadline_ms)
    answers = await look.answers(broker, reads)
    responses = await in_turns(reading.responses(look, answers))
    if reading.is_replaced:
        code = ErrorCode.INVALID_FETCH_SESSION_EPOCH
        return FetchResponse(error_code=code, session_id=session.id, responses=())
    broker.counts.fetched_bytes += bytes_of(reads)
    return FetchResponse(session_id=session.id, responses=responses)


ROWS = (Served(FETCH_API, fetch, FETCH, reads=answer_bytes_max, finds_topics_itself=True),)
