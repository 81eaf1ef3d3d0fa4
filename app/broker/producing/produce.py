"""The acknowledgement that a producer requests, and the receipt that it gets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from stele.wire.messages import Durability

from ...errors import InvalidAcks, RequestTimedOut, SteleError
from ...storage.engine import AppendTicket


class Acks(IntEnum):
    """The acknowledgement mode: immediately, once appended, or once synced (ADR-0003)."""

    NONE = 0
    LEADER = 1
    ALL = -1

    @classmethod
    def parse(cls, value: str | int) -> Acks:
        """Parse ``"all"`` or a number, also as text. Raises ``InvalidAcks``."""
        try:
            return cls.ALL if value == "all" else cls(int(value))
        except ValueError:
            raise InvalidAcks(value) from None


@dataclass(frozen=True, slots=True)
class Produced:
    """A receipt; ``log_append_time_ms`` is -1 unless the topic stamps records."""

    topic: str
    partition: int
    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    durability: Durability


class PendingProduce:
    """A produce that has its position in the partition, and may not be durable yet.

    Its offsets are known when it is ``done``, and at once from the embedded engine.
    """

    __slots__ = ("_acks", "_sync", "_ticket", "partition", "topic")

    def __init__(
        self,
        topic: str,
        partition: int,
        ticket: AppendTicket,
        acks: Acks,
        sync: Callable[[AppendTicket], None] | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self._ticket = ticket
        self._acks = acks
        # Requests the sync of the ticket; it was postponed until a caller awaits it.
        self._sync = sync

    @property
    def done(self) -> bool:
        """True if ``result`` can be called.

        At once for acks 0 and 1, unless the engine gives offsets later.
        """
        return self._sync is None and self._ticket.done

    @property
    def base_offset(self) -> int:
        return self._ticket.base_offset

    @property
    def future(self) -> asyncio.Future[None] | None:
        """Completes when ``done`` becomes true, for callers that await many at once."""
        return self._ticket.future

    def result(self) -> Produced:
        """Return the receipt, once ``done``.

        Raises ``LogDirFailed`` if the records could not be synced.
        """
        ticket = self._ticket
        if ticket.future is not None:
            ticket.future.result()
        is_promised = self._acks is not Acks.NONE
        return Produced(
            topic=self.topic,
            partition=self.partition,
            base_offset=ticket.base_offset,
            last_offset=ticket.last_offset,
            log_append_time_ms=ticket.log_append_time_ms,
            log_start_offset=ticket.log_start_offset,
            durability=ticket.durability if is_promised else Durability.NONE,
        )

    def placed(self) -> tuple[int, int, int]:
        """Return base offset, append time and log start offset, faster than ``result``.

        Raises the same errors.
        """
        ticket = self._ticket
        if ticket.future is not None:
            ticket.future.result()
        return ticket.base_offset, ticket.log_append_time_ms, ticket.log_start_offset

    async def wait(self, timeout_ms: int) -> Produced:
        """Wait for the receipt and return it.

        Raises:
            RequestTimedOut: it is not due yet; the records may still become durable.
            LogDirFailed: they could not be synced.
        """
        ticket = self._ticket
        if self._sync is not None:
            self._sync(ticket)
            self._sync = None
        future = ticket.future
        if future is not None and not future.done():
            await _ended(future, timeout_ms)
            if not future.done():
                raise RequestTimedOut(f"the sync of {self.topic}-{self.partition}", timeout_ms=timeout_ms)
        return self.result()


async def _ended(future: asyncio.Future[None], timeout_ms: int) -> None:
    """Wait until ``future`` ends, or ``timeout_ms``; it stays as it is.

    As ``asyncio.wait``, which takes several times as long for a single future.
    """
    loop = asyncio.get_running_loop()
    waiter = loop.create_future()

    def end(_future: object = None) -> None:
        if not waiter.done():
            waiter.set_result(None)

    timer = loop.call_later(timeout_ms / 1000, end)
    future.add_done_callback(end)
    try:
        await waiter
    finally:
        timer.cancel()
        future.remove_done_callback(end)


class QueuedProduce(PendingProduce):
    """A produce that is large or that a thread must prepare first, and that may still be refused.

    Its position among the produces of its partition is reserved.
    """

    __slots__ = ("_error", "_settled", "appended")

    def __init__(self, topic: str, partition: int, acks: Acks) -> None:
        super().__init__(topic, partition, _NO_TICKET, acks)
        loop = asyncio.get_running_loop()
        # Completes when the batches are appended or refused, and never with an error.
        self.appended: asyncio.Future[None] = loop.create_future()
        self._settled: asyncio.Future[None] = loop.create_future()
        self._error: SteleError | None = None

    def settle(self, outcome: PendingProduce | SteleError) -> None:
        """Note the outcome of the append, or the error that refused it."""
        self.appended.set_result(None)
        if isinstance(outcome, SteleError):
            self._error = outcome
        else:
            self._ticket, self._sync = outcome._ticket, outcome._sync
            future = outcome.future
            if future is not None and not future.done():
                future.add_done_callback(lambda _: self._settled.set_result(None))
                return
        self._settled.set_result(None)

    @property
    def done(self) -> bool:
        return self._settled.done() and (self._error is not None or super().done)

    @property
    def future(self) -> asyncio.Future[None] | None:
        return self._settled

    def result(self) -> Produced:
        """Return the receipt. Raises what the append raised, and ``LogDirFailed``."""
        if self._error is not None:
            raise self._error
        return super().result()

    def placed(self) -> tuple[int, int, int]:
        if self._error is not None:
            raise self._error
        return super().placed()

    async def wait(self, timeout_ms: int) -> Produced:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_ms / 1000
        done, _ = await asyncio.wait((self._settled,), timeout=timeout_ms / 1000)
        if not done:
            raise RequestTimedOut(f"the append to {self.topic}-{self.partition}", timeout_ms=timeout_ms)
        if self._error is not None:
            raise self._error
        return await super().wait(_left_ms(deadline_s))


def _left_ms(deadline_s: float) -> int:
    return max(1, round((deadline_s - asyncio.get_running_loop().time()) * 1000))


_NO_TICKET = AppendTicket(
    base_offset=-1, last_offset=-1, log_append_time_ms=-1, log_start_offset=-1, durability=Durability.NONE
)
