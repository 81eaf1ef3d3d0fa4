"""Read the partitions of a Fetch, and wait for records.

Every Fetch is read by ``read_until``: look, read, and wait until there is enough or the time is over. What it looks at
and how it waits depends on whether it is in a session.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from stele.wire.kafka.fetch import FetchableTopicResponse, FetchRequest

from ....broker.broker import Broker
from ....broker.reading.fetch import Fetched, bytes_of, needs_more
from ....work_budget import PARTITIONS_PER_TURN, Pace, Steps, in_turns
from ..context import Context
from ..sessions.fetch_sessions import FetchedPartition, FetchSession
from .looks import Answer, Look, grouped, look_at, readable
from .read_replicas import rack_to_read_from
from .requests import answer_bytes_max, isolation_of


class Reading(Protocol):
    """What a request looks at, and how it waits."""

    async def look(self) -> Look:
        """Return what to read now."""
        ...

    async def note(self, look: Look, reads: Sequence[Fetched]) -> None:
        """Note what was read."""
        ...

    def is_over(self, look: Look) -> bool:
        """Return whether to answer now, however little was read."""
        ...

    async def wait(self, look: Look, reads: Sequence[Fetched], *, min_bytes: int, timeout_ms: int) -> None:
        """Wait for ``min_bytes`` more than ``reads``, or the timeout."""
        ...


class WholeReading:
    """A request without a session reads all its partitions, which are checked once.

    ``look`` is given if they need no check.
    """

    __slots__ = ("_begins_session", "_context", "_isolation", "_look", "_partitions", "_rack")

    def __init__(
        self,
        context: Context,
        request: FetchRequest,
        partitions: Sequence[FetchedPartition],
        *,
        look: Look | None = None,
        begins_session: bool = False,
    ) -> None:
        self._context = context
        self._partitions = partitions
        self._isolation = isolation_of(request)
        self._rack = rack_to_read_from(context, request.rack_id)
        self._look = look
        self._begins_session = begins_session

    async def look(self) -> Look:
        if self._look is None:
            self._look = await look_at(
                self._context, self._partitions, self._isolation, missing=None, rack=self._rack
            )
        return self._look

    async def note(self, look: Look, reads: Sequence[Fetched]) -> None:
        """Do nothing."""

    def is_over(self, look: Look) -> bool:
        return look.is_urgent or not look.wanted

    async def wait(self, look: Look, reads: Sequence[Fetched], *, min_bytes: int, timeout_ms: int) -> None:
        await self._context.broker.wait_for_more(
            look.wanted, reads, min_bytes=min_bytes, timeout_ms=timeout_ms
        )

    def responses(self, look: Look, answers: Sequence[Answer]) -> Steps[list[FetchableTopicResponse]]:
        shown = readable(self._context, look, answers)
        return grouped(map(_noted, shown) if self._begins_session else shown)


class SessionReading:
    """A request in a session reads the partitions that may have changed."""

    __slots__ = ("_context", "_epoch", "_isolation", "_missing", "_rack", "_session")

    def __init__(self, context: Context, request: FetchRequest, session: FetchSession) -> None:
        self._context = context
        self._session = session
        self._epoch = session.epoch
        self._isolation = isolation_of(request)
        self._rack = rack_to_read_from(context, request.rack_id)
        # Those that were missing at the first look.
        self._missing: set[FetchedPartition] | None = None
        session.watch.isolation = self._isolation

    @property
    def is_replaced(self) -> bool:
        """Whether the session's next request has arrived; its response replaces this one."""
        return self._session.epoch != self._epoch

    async def look(self) -> Look:
        partitions = await in_turns(self._candidates())
        look = await look_at(
            self._context, partitions, self._isolation, missing=self._missing, rack=self._rack
        )
        if self._missing is None:
            self._missing = look.missing
        return look

    def _candidates(self) -> Steps[list[FetchedPartition]]:
        """Return the partitions to look at.

        Topics that were created since a request named their ids get their names.
        """
        session, broker = self._session, self._context.broker
        partitions = yield from session.candidates()
        pace = Pace()
        for partition in partitions:
            if pace.is_due():
                yield
            if partition.topic or self.is_replaced:
                continue
            if (topic := broker.topic_by_id(partition.topic_id)) is not None:
                session.resolve(partition, topic.name)
        return partitions

    async def note(self, look: Look, reads: Sequence[Fetched]) -> None:
        """Do nothing: the session notes what is answered."""

    def is_over(self, look: Look) -> bool:
        session = self._session
        return (
            look.is_urgent or self.is_replaced or session.is_over or len(self._missing or ()) == len(session)
        )

    async def wait(self, look: Look, reads: Sequence[Fetched], *, min_bytes: int, timeout_ms: int) -> None:
        await self._session.watch.wait(min_bytes=min_bytes, timeout_ms=timeout_ms)

    def responses(self, look: Look, answers: Sequence[Answer]) -> Steps[list[FetchableTopicResponse]]:
        """Return what has changed, and note it in the session, unless its next request has arrived."""
        return grouped(readable(self._context, look, answers), self._settle)

    def _settle(self, answer: Answer) -> bool:
        return not self.is_replaced and answer.settle(self._session)


def _noted(answer: Answer) -> Answer:
    answer.note()
    return answer


async def read_until(
    broker: Broker,
    request: FetchRequest,
    reading: Reading,
    deadline_ms: int,
    reads: list[Fetched] | None = None,
) -> tuple[Look, list[Fetched]]:
    """Read what ``reading`` looks at, and wait for more until ``deadline_ms``.

    It begins without a wait if all that is read is in memory. ``reads`` are given if the first read has been made, just
    now.
    """
    waits = deadline_ms > broker.monotonic_ms()
    while True:
        max_bytes = answer_bytes_max(broker, request)
        min_bytes = max(0, min(request.min_bytes, max_bytes))
        look = await reading.look()
        if not look.wanted:
            reads = []
        elif reads is None and len(look.wanted) <= PARTITIONS_PER_TURN:
            reads = broker.fetch_now(look.wanted, max_bytes=max_bytes)
        look.is_current = reads is not None
        if reads is None:
            refreshes = not waits or reading.is_over(look)
            reads = await broker.read(look.wanted, max_bytes=max_bytes, refreshes=refreshes)
            look.is_stale = True
        await reading.note(look, reads)
        left_ms = deadline_ms - broker.monotonic_ms()
        if (
            left_ms <= 0
            or broker.is_closing
            or reading.is_over(look)
            or not needs_more(look.wanted, reads, min_bytes)
        ):
            return look, reads
        missing_bytes = min_bytes - bytes_of(reads)
        await reading.wait(look, reads, min_bytes=missing_bytes, timeout_ms=left_ms)
        look.is_stale, reads = True, None
