"""One TCP connection: asyncio's transport on one side, a protocol's brain on the other.

What every TCP door needs and none should write twice: answers leave in the
order of the requests though they finish in any, a peer that does not read is
paused and not buffered, a frame that never ends and a peer that says nothing
are timed out, and a shutdown lets the answers in flight out.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine, Sequence
from typing import Protocol, cast

logger = logging.getLogger(__name__)

Buffers = bytes | Sequence[bytes]


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
    """Whoever counts the connections."""

    def opened(self, connection: OrderedConnection) -> bool:
        """False if there are too many: the connection must say so and close."""
        ...

    def closed(self, connection: OrderedConnection) -> None: ...


class _Slot:
    """The place of one answer in the order; ``data`` None while it is not known."""

    __slots__ = ("data",)

    def __init__(self, data: Buffers | None) -> None:
        self.data = data


class OrderedConnection(asyncio.Protocol):
    """Base of a door's connection; the door implements ``frames_received`` and ``refusal``.

    A handler answers at once with ``answer`` or later with ``answer_later``;
    the base keeps the order. While anything is waiting, reading goes on until
    ``pipelined_requests_max`` answers are outstanding or ``output_bytes_max``
    are unsent; then the peer is paused.
    """

    def __init__(self, *, limits: ConnectionLimits, registry: ConnectionRegistry) -> None:
        self._limits = limits
        self._registry = registry
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._slots: deque[_Slot] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_write_paused = False
        self._is_read_paused = False
        self._is_held = False
        self._closing_after_answers = False
        self._timer: asyncio.TimerHandle | None = None
        self._last_byte_s = self._loop.time()
        self._frame_since_s: float | None = None
        self.peer = "?"

    # ── for the door ──

    def frames_received(self, data: bytes) -> None:
        """Take what came; answer every request in it."""
        raise NotImplementedError

    def has_partial_frame(self) -> bool:
        """True while a frame has begun and not ended."""
        raise NotImplementedError

    def refusal(self, reason: str) -> bytes:
        """The door's words for a connection that is closed with a reason."""
        raise NotImplementedError

    def answer(self, data: Buffers) -> None:
        """Answer the request that is next in order."""
        if self._slots:
            self._slots.append(_Slot(data))
        else:
            self._write(data)

    def answer_later(self, work: Coroutine[object, object, Buffers]) -> None:
        """Keep the place of this answer and let ``work`` make it; ``work`` must not raise."""
        slot = _Slot(None)
        self._slots.append(slot)
        task = self._loop.create_task(self._fill(slot, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if len(self._slots) >= self._limits.pipelined_requests_max:
            self._update_reading()

    @property
    def has_answers_waiting(self) -> bool:
        return bool(self._slots)

    @property
    def is_closed(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def pause_requests(self) -> None:
        """Read nothing more until ``resume_requests``; what was read already is the door's to keep."""
        self._is_held = True
        self._update_reading()

    def resume_requests(self) -> None:
        self._is_held = False
        self._update_reading()

    def close_after_answers(self) -> None:
        """Read no more, and close when what was asked is answered."""
        self._closing_after_answers = True
        self._update_reading()
        self._close_if_done()

    # ── order ──

    async def _fill(self, slot: _Slot, work: Coroutine[object, object, Buffers]) -> None:
        try:
            slot.data = await work
        except Exception:  # the edge of a connection: the order is lost, so it ends here
            logger.exception("an answer to %s could not be made; the connection is closed", self.peer)
            self.abort()
            return
        slots = self._slots
        while slots and (data := slots[0].data) is not None:
            slots.popleft()
            self._write(data)
        self._update_reading()
        self._close_if_done()

    def _write(self, data: Buffers) -> None:
        transport = self._transport
        if transport is None or transport.is_closing() or not data:
            return
        if isinstance(data, bytes):
            transport.write(data)
        else:
            transport.writelines(data)

    def _close_if_done(self) -> None:
        if self._closing_after_answers and not self._slots and self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Cut the connection off; what was not sent is lost."""
        if self._transport is not None:
            self._transport.abort()

    # ── asyncio.Protocol ──

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=self._limits.output_bytes_max)
        self.peer = str(transport.get_extra_info("peername"))
        if not self._registry.opened(self):
            self._write(self.refusal("too many connections; close one, or raise connections_max"))
            self._transport.close()
            return
        self._watch(self._limits.idle_timeout_ms / 1000)

    def connection_lost(self, exc: Exception | None) -> None:
        self._registry.closed(self)
        if self._timer is not None:
            self._timer.cancel()
        for task in list(self._tasks):
            task.cancel()
        self._slots.clear()

    def data_received(self, data: bytes) -> None:
        if self._closing_after_answers:
            return
        self._last_byte_s = self._loop.time()
        self.frames_received(data)
        if not self.has_partial_frame():
            self._frame_since_s = None
        elif self._frame_since_s is None:
            self._frame_since_s = self._last_byte_s
            self._watch(self._limits.frame_timeout_ms / 1000)

    def eof_received(self) -> bool:
        # Half-open: what was asked before is still answered.
        self.close_after_answers()
        return True

    def pause_writing(self) -> None:
        self._is_write_paused = True
        self._update_reading()

    def resume_writing(self) -> None:
        self._is_write_paused = False
        self._update_reading()

    def _update_reading(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        must_pause = (
            self._is_write_paused
            or self._is_held
            or self._closing_after_answers
            or len(self._slots) >= self._limits.pipelined_requests_max
        )
        if must_pause and not self._is_read_paused:
            self._is_read_paused = True
            transport.pause_reading()
        elif not must_pause and self._is_read_paused:
            self._is_read_paused = False
            self._last_byte_s = self._loop.time()
            transport.resume_reading()

    # ── time ──

    def _watch(self, delay_s: float) -> None:
        if self._timer is None or self._timer.when() > self._loop.time() + delay_s:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_later(delay_s, self._look_at_clock)

    def _look_at_clock(self) -> None:
        self._timer = None
        now_s = self._loop.time()
        idle_s = self._limits.idle_timeout_ms / 1000
        frame_s = self._limits.frame_timeout_ms / 1000
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

    def _give_up(self, reason: str) -> None:
        self.answer(self.refusal(reason))
        self.close_after_answers()
