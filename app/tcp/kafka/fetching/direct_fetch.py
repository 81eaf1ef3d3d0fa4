"""The fast path of the commonest fetches.

A Fetch of one partition, in a session or without one, or of several partitions without a session. Batches are at hand,
or are appended while it waits. It is recognized by its bytes (``fetch_routes``), and answered with the bytes with which
the generic path would answer.

Whatever is anything else takes the generic path (``handlers.fetch``): sessions that begin, end or have news of another
partition, requests in a session that name several partitions, requests that get no records in their time or must wait
for a disk, reads that contain aborted transactions, old formats, and every error, also that of a single partition.
Nothing has happened when a request is left to it, unless it has waited: its session has taken it then, and the time
that it may wait is shorter.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from ....broker.broker import Broker
from ....broker.reading.fetch import Fetched, PartitionFetch, bytes_of, needs_more
from ....security.acl import READ_TOPIC
from ....security.authorizer import Access
from ...response_queue import Buffers
from ..direct_charge import DirectCharge
from ..handlers.leader_epoch import check_leader_epoch
from ..sessions.fetch_sessions import (
    FINAL_EPOCH,
    NEW_SESSION_EPOCH,
    NO_SESSION_ID,
    FetchedPartition,
    FetchSession,
    FetchSessionCache,
)
from .fetch_routes import Layout, Route

_SESSION = struct.Struct(">ii")


@dataclass(slots=True)
class DirectFetch:
    """A request of a route, from its first look at the log to its response.

    ``session`` is the one that it is for, with the ``epoch`` that the session has as long as no other request has
    come; its route has one partition then. The request may return ``bytes_max`` bytes, and waits for ``bytes_min`` of
    them until ``deadline_ms``.
    """

    broker: Broker
    sessions: FetchSessionCache
    route: Route
    session: FetchSession | None
    epoch: int
    bytes_max: int
    bytes_min: int
    deadline_ms: int
    # What the last look has asked for, in the order of the partitions of the route.
    wanted: Sequence[PartitionFetch]

    @property
    def left_ms(self) -> int:
        """How long it may wait."""
        return 0 if self.broker.is_closing else self.deadline_ms - self.broker.monotonic_ms()

    def look(self, access: Access | None) -> list[Fetched] | None:
        """Check the request against what holds now, and read.

        None if it must take the generic path.
        """
        route, broker, session = self.route, self.broker, self.session
        is_granted = access is None or route.granted is access.epoch
        for partition, wanted in zip(route.partitions, self.wanted, strict=True):
            name = partition.topic
            if route.is_by_id:
                topic = broker.topic_by_id(partition.topic_id)
                if topic is None:
                    return None
                name = topic.name
            if not is_granted and access is not None and not access.was_allowed(READ_TOPIC, name):
                return None
            if check_leader_epoch(broker, name, partition.partition, partition.leader_epoch):
                return None
            wanted.topic = name
        if access is not None:
            route.granted = access.epoch
        if session is not None:
            (partition,), (wanted,) = route.partitions, self.wanted
            if (
                session.epoch != self.epoch
                or session.is_over
                or not session.has_news_only_of(route.key(partition), wanted.topic)
            ):
                return None
        reads = broker.fetch_now(self.wanted, max_bytes=self.bytes_max)
        if reads is None:
            return None
        for read in reads:
            if read.aborted:
                return None
        return reads

    def needs_more(self, reads: Sequence[Fetched]) -> bool:
        return needs_more(self.wanted, reads, self.bytes_min)

    def take(self) -> bool:
        """Let the session take the request.

        False if the generic path must refuse it.
        """
        session, route = self.session, self.route
        if session is None:
            return True
        if self.sessions.is_over_full:
            return False
        (partition,), (wanted,) = route.partitions, self.wanted
        self.sessions.use(
            session,
            route.key(partition),
            offset=wanted.offset,
            max_bytes=partition.bytes_max,
            leader_epoch=partition.leader_epoch,
            now_ms=self.broker.monotonic_ms(),
        )
        self.epoch = session.epoch
        return True

    def partitions(self) -> list[FetchedPartition]:
        """Return the partitions as the generic path knows them."""
        return [
            FetchedPartition(
                topic=wanted.topic,
                topic_id=partition.topic_id,
                index=partition.partition,
                offset=wanted.offset,
                max_bytes=partition.bytes_max,
                leader_epoch=partition.leader_epoch,
                is_by_id=self.route.is_by_id,
            )
            for partition, wanted in zip(self.route.partitions, self.wanted, strict=True)
        ]

    async def wait(self, reads: Sequence[Fetched]) -> None:
        """Wait for more than ``reads``, the results of the last look."""
        missing_bytes = self.bytes_min - bytes_of(reads)
        if self.session is not None:
            await self.session.watch.wait(min_bytes=missing_bytes, timeout_ms=self.left_ms)
        else:
            await self.broker.wait_for_more(
                self.wanted, reads, min_bytes=missing_bytes, timeout_ms=self.left_ms
            )

    def response(self, correlation_id: int, reads: Sequence[Fetched], charge: DirectCharge | None) -> Buffers:
        """Return the response with the batches of ``reads``, after ``take``."""
        session = self.session
        if session is not None:
            (read,), (partition,) = reads, self.route.partitions
            session.settle(
                session.partition(self.route.key(partition)),
                has_records=True,
                is_error=False,
                high_watermark=read.high_watermark,
                log_start_offset=read.log_start_offset,
            )
        size = bytes_of(reads)
        self.broker.counts.fetched_bytes += size
        wait_ms = 0 if charge is None else charge.fetched(size)
        session_id = NO_SESSION_ID if session is None else session.id
        return self.route.response(correlation_id, session_id, reads, wait_ms)


def has_batches(reads: Sequence[Fetched]) -> bool:
    return bytes_of(reads) > 0


def begin_fetch(
    broker: Broker,
    sessions: FetchSessionCache,
    route: Route,
    layout: Layout,
    frame: memoryview,
    charge: DirectCharge | None,
) -> DirectFetch | None:
    """Return the request of this route in ``frame``.

    None if it must take the generic path.
    """
    bytes_max = route.bytes_max if charge is None else charge.readable_bytes(route.bytes_max)
    if bytes_max is None:
        return None
    session, epoch = None, FINAL_EPOCH
    if layout.session >= 0:
        session_id, epoch = _SESSION.unpack_from(frame, layout.session)
        if epoch == NEW_SESSION_EPOCH or (epoch == FINAL_EPOCH and session_id != NO_SESSION_ID):
            return None
        if epoch != FINAL_EPOCH:
            session = sessions.find(session_id, epoch, uses_topic_ids=route.is_by_id)
            if session is None or session.watch.isolation is not route.isolation:
                return None
            if len(route.partitions) > 1:
                return None
    settings = broker.settings
    bytes_max = min(bytes_max, settings.fetch_bytes_max)
    return DirectFetch(
        broker,
        sessions,
        route,
        session,
        epoch,
        bytes_max,
        min(route.bytes_min, bytes_max),
        broker.monotonic_ms() + min(route.wait_ms_max, settings.fetch_wait_ms_max),
        [
            PartitionFetch(
                topic=partition.topic,
                partition=partition.partition,
                offset=offset,
                max_bytes=partition.bytes_max,
                isolation=route.isolation,
            )
            for partition, offset in zip(route.partitions, layout.offsets_of(frame), strict=True)
        ],
    )
