"""One TCP connection: asyncio's transport on one side, a protocol's brain on the other.

What every TCP listener needs and none should write twice: answers leave in the
order of the requests though they finish in any, a peer that does not read is
paused and not buffered, a frame that never ends and a peer that says nothing
are timed out, and a shutdown lets the answers in flight out.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

from .deadlines import Deadlines

logger = logging.getLogger(__name__)

Buffers = bytes | Sequence[bytes | bytearray]

# What the reads under way may bring to one connection, all together; one is always allowed.
READING_BYTES_MAX = 64 * 1024 * 1024
# A peer that is told of the end may still be sending. Closing on unread bytes resets the
# connection and takes the last answers with it, so they are read and dropped until the peer
# has been quiet for a moment, or for this long at most.
LINGER_S = 2.0
LINGER_QUIET_S = 0.1


class ConnectionLimits(Protocol):
    """The settings a connection obeys; see ``settings`` for the reasons."""

    @property
    def pipelined_requests_max(self) -> int: ...
    @property
    def output_bytes_max(self) -> int: ...
    @property
    def frame_timeout_ms(self) -> int: ...
    @property
    def idle_timeout_ms(self) -> int: ...


class ConnectionRegistry(Protocol):
    """Counts the connections of a listener, and looks at the clock for them."""

    @property
    def deadlines(self) -> Deadlines: ...

    def opened(self, connection: OrderedConnection) -> str | None:
        """None to let it in; else why not: the connection says so and closes."""
        ...

    def closed(self, connection: OrderedConnection) -> None: ...


class _Slot:
    """The place of one answer in the order; ``data`` None while it is not known."""

    __slots__ = ("data", "size")

    def __init__(self, data: Buffers | None) -> None:
        self.data = data
        self.size = _size(data) if data is not None else 0


@dataclass(frozen=True, slots=True)
class WhenDone:
    """An answer that is due when ``future`` ends, or after ``timeout_s`` seconds.

    ``answer`` makes it, must not raise, and is told whether the future has ended.
    Many may wait for one future, and none of them ends it.
    """

    future: asyncio.Future[None]
    timeout_s: float
    answer: Callable[[bool], Buffers]


class OrderedConnection(asyncio.Protocol):
    """Base of a listener's connection.

    The listener implements ``frames_received``, ``has_partial_frame``,
    ``has_held_requests`` and ``refusal``. It takes requests one after the other
    while ``may_take`` holds, keeps the bytes of the others, and is asked again
    when it holds again; meanwhile the peer is not read from. Each request is
    answered at once with ``answer`` or later with ``answer_later`` or
    ``read_later``; the base keeps the order.
    """

    # There are thousands, most of them idle: no dictionary, and nothing that is made before it is needed.
    __slots__ = (
        "_abandonable",
        "_closing_after_answers",
        "_frame_since_s",
        "_has_peer_ended",
        "_is_beginning",
        "_is_held",
        "_is_read_paused",
        "_is_taking",
        "_is_write_paused",
        "_last_byte_s",
        "_limits",
        "_linger_until_s",
        "_loop",
        "_reading_bytes",
        "_registry",
        "_slots",
        "_transport",
        "_unsent_bytes",
        "_unsent_since_s",
        "_waiting_bytes",
        "bytes_in",
        "bytes_out",
        "client_id",
        "client_name",
        "client_version",
        "due_s",
        "opened_s",
        "peer",
        "peer_host",
    )

    def __init__(self, *, limits: ConnectionLimits, registry: ConnectionRegistry) -> None:
        self._limits = limits
        self._registry = registry
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self.peer = "?"
        self.peer_host = "?"
        # What the client says of itself, and what went through, for whoever looks at the connections.
        self.client_id = ""
        self.client_name = ""
        self.client_version = ""
        self.opened_s = self._loop.time()
        self.bytes_in = 0
        self.bytes_out = 0
        # Answers in order, and the bytes of those that wait behind one that is not ready.
        self._slots: deque[_Slot] | None = None
        self._waiting_bytes = 0
        self._reading_bytes = 0
        self._abandonable: set[asyncio.Task[None]] | None = None
        # Why nothing is taken or read.
        self._is_write_paused = False
        self._is_read_paused = False
        self._is_held = False
        self._is_beginning = False
        self._is_taking = False
        # The end.
        self._closing_after_answers = False
        self._has_peer_ended = False
        self._linger_until_s: float | None = None
        self._unsent_bytes = 0
        self._unsent_since_s = 0.0
        # Time.
        self.due_s = 0.0
        self._last_byte_s = self.opened_s
        self._frame_since_s: float | None = None

    # ── for the listener ──

    def frames_received(self, data: bytes) -> bool:
        """Take the requests in what came, while ``may_take``; keep the rest. True if a frame ended."""
        raise NotImplementedError

    def has_partial_frame(self) -> bool:
        """True while a frame has begun and the peer must go on with it."""
        raise NotImplementedError

    def has_held_requests(self) -> bool:
        """True while requests have come that were not taken because ``may_take`` did not hold."""
        raise NotImplementedError

    def refusal(self, reason: str) -> bytes:
        """The listener's words for a connection that is closed with a reason."""
        raise NotImplementedError

    @property
    def peer_address(self) -> str:
        """``host:port``."""
        address = None if self._transport is None else self._transport.get_extra_info("peername")
        if not address:
            return self.peer_host
        host, port = address[:2]
        return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"

    def file_number(self) -> int:
        """The number of its file; -1 if it has none any more."""
        opened = None if self._transport is None else self._transport.get_extra_info("socket")
        return -1 if opened is None else opened.fileno()

    @property
    def may_take(self) -> bool:
        """True when the next request may begin: in its turn, and within what one connection may cost."""
        return not (self._is_beginning or self._is_full)

    @property
    def _is_full(self) -> bool:
        limits = self._limits
        return (
            self._is_held
            or self._is_write_paused
            or (self._slots is not None and len(self._slots) >= limits.pipelined_requests_max)
            or self._waiting_bytes >= limits.output_bytes_max
            or self._reading_bytes >= READING_BYTES_MAX
        )

    def answer(self, data: Buffers) -> None:
        """Answer the request that is next in order."""
        if self._slots:
            slot = _Slot(data)
            self._slots.append(slot)
            self._waiting_bytes += slot.size
        else:
            self._write(data)

    def _next_slot(self) -> _Slot:
        slot = _Slot(None)
        if self._slots is None:
            self._slots = deque()
        self._slots.append(slot)
        return slot

    def answer_later(self, work: Coroutine[object, object, Buffers], *, is_change: bool = False) -> None:
        """Keep the place of this answer and let ``work`` make it; ``work`` must not raise.

        A change goes on when the peer is gone: half of one would be worse than all of it.
        """
        slot = self._next_slot()
        task = self._loop.create_task(self._fill(slot, work))
        if not is_change:
            if self._abandonable is None:
                self._abandonable = set()
            self._abandonable.add(task)
            task.add_done_callback(self._has_ended)

    def _has_ended(self, task: asyncio.Task[None]) -> None:
        if self._abandonable is not None:
            self._abandonable.discard(task)
            if not self._abandonable:
                self._abandonable = None

    def answer_when(self, due: WhenDone) -> None:
        """Keep the place of this answer until its future ends: ``answer_later`` without a task of its own."""
        slot = self._next_slot()

        def settle(has_ended: bool) -> None:
            timer.cancel()
            due.future.remove_done_callback(ended)
            if slot.data is None:
                self._settle(slot, due.answer(has_ended))

        def ended(_future: asyncio.Future[None]) -> None:
            settle(True)

        timer = self._loop.call_later(due.timeout_s, settle, False)
        due.future.add_done_callback(ended)

    def read_later(self, work: Coroutine[object, object, Buffers], *, bytes_max: int) -> None:
        """``answer_later`` for what reads: nothing behind it begins before it has looked at the log."""
        self._reading_bytes += bytes_max
        self._is_beginning = True
        self.answer_later(self._read(work, bytes_max))
        # Behind the first step of the task, which stands in the same queue.
        self._loop.call_soon(self._has_begun)

    async def _read(self, work: Coroutine[object, object, Buffers], bytes_max: int) -> Buffers:
        try:
            return await work
        finally:
            self._reading_bytes -= bytes_max

    def _has_begun(self) -> None:
        self._is_beginning = False
        self._go_on()

    @property
    def is_closed(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def pause_requests(self) -> None:
        """Take nothing more until ``resume_requests``."""
        self._is_held = True

    def resume_requests(self) -> None:
        self._is_held = False
        self._loop.call_soon(self._go_on)

    def close_after_answers(self) -> None:
        """Read no more, and close when what was received is answered."""
        if not self._closing_after_answers:
            self._closing_after_answers = True
            self._watch(self._limits.frame_timeout_ms / 1000)
        self._go_on()

    # ── order ──

    async def _fill(self, slot: _Slot, work: Coroutine[object, object, Buffers]) -> None:
        try:
            data = await work
        except asyncio.CancelledError:
            # The peer is gone; or what the work waited for is, and then the order is lost as below.
            self.abort()
            raise
        except Exception:  # the edge of a connection: the order is lost, so it ends here
            logger.exception("an answer to %s could not be made; the connection is closed", self.peer)
            self.abort()
            return
        self._settle(slot, data)

    def _settle(self, slot: _Slot, data: Buffers) -> None:
        """The answer of ``slot`` is known: send all that stand in order now."""
        slot.data, slot.size = data, _size(data)
        self._waiting_bytes += slot.size
        slots = self._slots
        while slots and (ready := slots[0].data) is not None:
            self._waiting_bytes -= slots.popleft().size
            self._write(ready)
        if slots is not None and not slots:
            self._slots = None
        self._go_on()

    def _write(self, data: Buffers) -> None:
        transport = self._transport
        if transport is None or transport.is_closing() or self._linger_until_s is not None or not data:
            return
        self.bytes_out += _size(data)
        if isinstance(data, bytes):
            transport.write(data)
        else:
            transport.writelines(data)

    def _take(self, data: bytes) -> None:
        self._is_taking = True
        try:
            has_frame_ended = self.frames_received(data)
        except Exception:  # the edge of a connection, as in _fill
            logger.exception("a request of %s could not be taken; the connection is closed", self.peer)
            self.abort()
            return
        finally:
            self._is_taking = False
        if not self.has_partial_frame():
            self._frame_since_s = None
        elif has_frame_ended or self._frame_since_s is None:
            self._frame_since_s = self._loop.time()
            self._watch(self._limits.frame_timeout_ms / 1000)

    def _go_on(self) -> None:
        """After anything that was waited for: take what is held, read or pause, close if all is done."""
        if self._is_taking or self.is_closed:
            return
        if self.has_held_requests() and self.may_take:
            self._take(b"")
        self._update_reading()
        if self._closing_after_answers and not self._slots and not self.has_held_requests():
            self._close()

    def _update_reading(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing() or self._linger_until_s is not None:
            return
        # Requests that wait for their turn are as many as the peer sent before it was paused, and no more.
        must_pause = self._closing_after_answers or self._is_full or self.has_held_requests()
        if must_pause and not self._is_read_paused:
            self._is_read_paused = True
            transport.pause_reading()
        elif not must_pause and self._is_read_paused:
            self._is_read_paused = False
            self._last_byte_s = self._loop.time()
            if self._frame_since_s is not None:
                self._frame_since_s = self._last_byte_s
            transport.resume_reading()

    # ── the end ──

    def _close(self) -> None:
        """Everything is answered: say that nothing more comes, and let the peer see the answers."""
        transport = self._transport
        if transport is None or self._linger_until_s is not None:
            return
        if self._has_peer_ended:
            transport.close()
            return
        self._last_byte_s = self._loop.time()
        self._linger_until_s = self._last_byte_s + LINGER_S
        try:
            transport.write_eof()
        except OSError:  # it is gone already
            transport.abort()
            return
        if self._is_read_paused:
            transport.resume_reading()
        self._watch(LINGER_QUIET_S)

    def abort(self) -> None:
        """Cut the connection off; what was not sent is lost."""
        if self._transport is not None:
            self._transport.abort()

    # ── asyncio.Protocol ──

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=self._limits.output_bytes_max)
        address = transport.get_extra_info("peername")
        self.peer = str(address)
        # Clients come from few hosts.
        self.peer_host = sys.intern(str(address[0])) if address else "?"
        refused = self._registry.opened(self)
        if refused is None:
            self._watch(self._limits.idle_timeout_ms / 1000)
        else:
            self._give_up(refused)

    def connection_lost(self, exc: Exception | None) -> None:
        self._registry.closed(self)
        self._registry.deadlines.forget(self)
        for task in self._abandonable or ():
            # Soon, when all have begun: a coroutine that never begins is reported as a mistake.
            self._loop.call_soon(task.cancel)
        self._slots = None

    def data_received(self, data: bytes) -> None:
        self._last_byte_s = self._loop.time()
        self.bytes_in += len(data)
        if self._closing_after_answers:
            return
        self._take(data)
        self._go_on()

    def eof_received(self) -> bool:
        # Half-open: what was asked before is still answered.
        self._has_peer_ended = True
        if self._linger_until_s is not None and self._transport is not None:
            self._transport.close()
        self.close_after_answers()
        return True

    def pause_writing(self) -> None:
        self._is_write_paused = True
        self._go_on()

    def resume_writing(self) -> None:
        self._is_write_paused = False
        self._go_on()

    # ── time ──

    def _watch(self, delay_s: float) -> None:
        """Look at the clock in ``delay_s`` at the latest."""
        if self._transport is not None:
            self._registry.deadlines.watch(self, delay_s)

    def look_at_clock(self) -> None:
        """Called by ``Deadlines``."""
        now_s = self._loop.time()
        idle_s = self._limits.idle_timeout_ms / 1000
        frame_s = self._limits.frame_timeout_ms / 1000
        if self._closing_after_answers:
            self._look_at_closing(now_s, frame_s)
            return
        if self._is_write_paused:
            # A peer that reads nothing for as long as it may be silent is gone.
            if now_s - self._last_byte_s >= idle_s:
                self.abort()
                return
        elif (
            self._frame_since_s is not None
            and not self._is_read_paused
            and now_s - self._frame_since_s >= frame_s
        ):
            self._give_up("a frame was begun and not finished in time")
            return
        elif not self._slots and now_s - self._last_byte_s >= idle_s:
            self._give_up("nothing was asked for too long")
            return
        left = [idle_s - (now_s - self._last_byte_s)]
        if self._frame_since_s is not None:
            left.append(frame_s - (now_s - self._frame_since_s))
        self._watch(max(0.05, min(left)))

    def _look_at_closing(self, now_s: float, frame_s: float) -> None:
        transport = self._transport
        if transport is None:
            return
        unsent_bytes = transport.get_write_buffer_size()
        if unsent_bytes != self._unsent_bytes:
            self._unsent_bytes, self._unsent_since_s = unsent_bytes, now_s
        if self._linger_until_s is None:
            self._watch(frame_s)
        elif not unsent_bytes and (
            now_s - self._last_byte_s >= LINGER_QUIET_S or now_s >= self._linger_until_s
        ):
            transport.close()
        else:
            self._watch(LINGER_QUIET_S)
        if unsent_bytes and now_s - self._unsent_since_s >= frame_s:
            # It took nothing of its last answers for so long: it never will.
            self.abort()

    def _give_up(self, reason: str) -> None:
        self.answer(self.refusal(reason))
        self.close_after_answers()


def _size(data: Buffers) -> int:
    return len(data) if isinstance(data, bytes) else sum(map(len, data))
