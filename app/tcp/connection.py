"""One TCP connection: asyncio's transport on one side, a protocol on the other.

``Connection`` does what every TCP listener needs, out of four parts that know
nothing of sockets or the loop:

* a ``RequestCutter`` turns bytes into requests;
* the ``ResponseQueue`` lets responses leave in the order of the requests;
* ``FlowControl`` knows when the next request may begin and when to stop reading;
* ``connection_state`` is the life of the connection, as a table.

It adds the transport, the tasks and the clock: a peer that does not read is
paused instead of buffered, a frame that never ends and a silent peer are timed
out, and a shutdown lets the responses in progress out.

It is one class in one file, however long, because each method changes the same state: that of one connection.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, TypeVar, cast

from ..broker.reading.unread_responses import FREE_BYTES as UNREAD_FREE_BYTES
from ..network.closings import end_in_turn
from ..network.first_bytes import HANDSHAKE_FAILURE_ALERT, is_tls_hello
from ..network.pending_bytes import FREE_BYTES, HeldBytes
from ..security.principal import ANONYMOUS, Principal
from ..storage.waiters import Wakeup
from .begun_work import Begun, begin_now, go_on
from .connection_owner import ConnectionLimits, ConnectionRegistry
from .connection_state import Event, State, next_state
from .deferred_response import DeferredResponse
from .flow_control import Block, FlowControl
from .request_cutter import RequestCutter, UnreadableStream
from .response_queue import Buffers, PendingResponse, ResponseQueue, size_of

logger = logging.getLogger(__name__)

Request = TypeVar("Request")

# Requests that a connection begins in one turn of the loop, and for how long at most, so that many do not hold up other
# connections. It then waits for a turn among those like it (``server.TURNS_PER_LOOP``), as after a large response.
REQUESTS_PER_TURN = 64
TURN_S = 0.001
# A peer may still be sending when the broker ends the connection. Closing on unread bytes resets
# the connection and takes the last responses with it, so they are read and dropped until the peer
# has been quiet for a moment, or for this long at most.
LINGER_S = 2.0
LINGER_QUIET_S = 0.1
# Responses that are ready in one turn of the loop leave in one system call; more bytes than these leave at once,
# and up to this many are joined.
_HELD_BYTES_MAX = 64 * 1024

_NO_ROOM = (
    "incomplete requests of all connections hold as many bytes as pending_request_bytes_max allows; "
    "connect again later, or send smaller requests"
)
_RESPONSE_FAILED = "the response to a request of %s could not be made; the connection is closed"
# Looked up for every piece of data; an attribute of an enumeration takes several times as long.
_OPEN, _LINGERING, _CLOSED = State.OPEN, State.LINGERING, State.CLOSED


class _Deferred:
    """A response that is due when a future ends, or its time is over.

    Not two functions that refer to each other: their cycle would keep the request until garbage is collected.
    """

    __slots__ = ("_connection", "_encode", "_future", "_response", "_timer")

    def __init__(
        self,
        connection: Connection[Any],
        response: PendingResponse,
        future: asyncio.Future[None],
        timeout_ms: int,
        encode: Callable[[bool], Buffers],
    ) -> None:
        self._connection = connection
        self._response = response
        self._encode = encode
        self._future = future
        self._timer = connection._loop.call_later(timeout_ms / 1000, self._time_over)
        future.add_done_callback(self._ended)

    def _ended(self, _future: asyncio.Future[None]) -> None:
        self._timer.cancel()
        self._connection._deferred_ended(self._response, self._encode, has_ended=True)

    def _time_over(self) -> None:
        self._future.remove_done_callback(self._ended)
        self._connection._deferred_ended(self._response, self._encode, has_ended=False)


class Connection(asyncio.Protocol, Generic[Request]):
    """Base of the connections of each protocol.

    A protocol hands in its cutter and implements ``begin`` and ``refusal``. ``begin``
    is called for one request after the other, as long as the limits allow; the bytes
    of the others stay in the cutter and the peer is not read from. Each request is
    answered at once with ``answer``, or later with ``answer_later``,
    ``answer_deferred`` or ``read_later``; responses keep the order of the requests.
    """

    # There are thousands, most of them idle: no dictionary, and nothing is made before it is needed.
    __slots__ = (
        "_abandonable",
        "_cutter",
        "_flow",
        "_frame_since_s",
        "_held",
        "_held_bytes",
        "_is_beginning",
        "_is_read_paused",
        "_is_sent_soon",
        "_is_turn_due",
        "_is_unread",
        "_last_byte_s",
        "_limits",
        "_linger_until_s",
        "_loop",
        "_pending",
        "_registry",
        "_responses",
        "_state",
        "_transport",
        "_unsent_bytes",
        "_unsent_since_s",
        "_waiting_reads",
        "bytes_in",
        "bytes_out",
        "client_id",
        "client_name",
        "client_version",
        "credential",
        "due_s",
        "opened_s",
        "peer",
        "peer_host",
        "principal",
        "tls_version",
    )

    def __init__(
        self,
        cutter: RequestCutter[Request],
        *,
        limits: ConnectionLimits,
        registry: ConnectionRegistry[Connection[Any]],
    ) -> None:
        self._cutter = cutter
        self._limits = limits
        self._registry = registry
        self._responses = ResponseQueue()
        self._flow = FlowControl(limits, self._responses)
        self._state = State.OPEN
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self.peer = "?"
        self.peer_host = "?"
        # Who the peer is, by its certificate or login (``Login.credential``); the version of TLS, empty without.
        self.principal, self.credential, self.tls_version = ANONYMOUS, "", ""
        # The name that the client sent, and bytes per direction: shown to operators.
        self.client_id = ""
        self.client_name = ""
        self.client_version = ""
        self.opened_s = self._loop.time()
        self.bytes_in = 0
        self.bytes_out = 0
        # Tasks that are cancelled when the peer is gone, and reads that are closed then.
        self._abandonable: set[asyncio.Task[None]] | None = None
        self._waiting_reads: set[Coroutine[object, object, Buffers]] | None = None
        # What answers a request may call ``_go_on``, which must not begin the next one inside it.
        self._is_beginning = False
        self._is_read_paused = False
        # Bytes of responses that leave together, soon.
        self._held: list[bytes | bytearray] | None = None
        self._held_bytes = 0
        self._is_sent_soon = False
        # The connection is among those that wait for a turn.
        self._is_turn_due = False
        # It is among those that hold more responses than is free (``UnreadResponses``).
        self._is_unread = False
        self._linger_until_s = 0.0
        self._unsent_bytes = 0
        self._unsent_since_s = 0.0
        self.due_s = 0.0
        self._last_byte_s = self.opened_s
        self._frame_since_s: float | None = None
        # What is here of an incomplete request, if it is large.
        self._pending: HeldBytes | None = None

    # ── implemented by a protocol ──

    def begin(self, request: Request) -> None:
        """Begin a request, and answer it now or later.

        An exception ends the connection.
        """
        raise NotImplementedError

    def refusal(self, reason: str) -> bytes:
        """Return the protocol's message for a connection that is closed with a reason; may be empty."""
        raise NotImplementedError

    def unreadable(self, reason: str) -> None:
        """End the connection because the peer's bytes can no longer be cut into requests."""
        self._give_up(reason)

    # ── called by a protocol ──

    def answer(self, data: Buffers) -> None:
        """Answer the request that is next in order."""
        if self._responses.is_direct:
            size = self._hold(data)
            self._send_ready()
        else:
            size = self._responses.append(data)
            if self._responses.waiting_bytes > UNREAD_FREE_BYTES:
                self._count_unread()
        if size > _HELD_BYTES_MAX:
            # It was much work for one turn: the next request waits for another.
            self._flow.block(Block.TURN)

    def answer_later(self, work: Coroutine[object, object, Buffers], *, is_change: bool = False) -> None:
        """Reserve the place of this response until ``work`` returns it; ``work`` must not raise.

        A change continues after the peer has disconnected, because half a change would be
        worse than a whole one.
        """
        self._fill_in_task(self._responses.reserve(), work, is_change=is_change)

    def _fill_in_task(
        self, response: PendingResponse, work: Coroutine[object, object, Buffers], *, is_change: bool = False
    ) -> None:
        task = self._loop.create_task(self._fill(response, work))
        if not is_change:
            if self._abandonable is None:
                self._abandonable = set()
            self._abandonable.add(task)
            task.add_done_callback(self._task_ended)

    def answer_deferred(self, deferred: DeferredResponse[Any], encode: Callable[[bool], Buffers]) -> None:
        """``answer_when`` for what a handler returned."""
        self.answer_when(deferred.future, deferred.timeout_ms, encode)

    def answer_when(
        self, future: asyncio.Future[None], timeout_ms: int, encode: Callable[[bool], Buffers]
    ) -> None:
        """Reserve the place of this response until ``future`` ends: ``answer_later`` without a task.

        ``encode`` gets whether the future has ended, or else ``timeout_ms`` are over; it must not raise.
        """
        _Deferred(self, self._responses.reserve(), future, timeout_ms, encode)

    def _deferred_ended(
        self, response: PendingResponse, encode: Callable[[bool], Buffers], *, has_ended: bool
    ) -> None:
        """Fill in the response that ``answer_when`` has reserved, unless the connection has dropped it."""
        if response.data is not None:
            return
        try:
            data = encode(has_ended)
        except Exception:  # the edge of a connection, as in _fill
            logger.exception(_RESPONSE_FAILED, self.peer)
            self.abort()
            return
        self._settle(response, data)

    def read_later(self, work: Coroutine[object, object, Buffers], *, bytes_max: int) -> None:
        """``answer_later`` for reads: no later request begins before this one has looked at the log.

        ``bytes_max`` is the largest size of the response; its sum bounds the reads in progress.
        """
        rest = self.begin_read(work)
        if rest is not None:
            self.finish_read(rest, bytes_max=bytes_max)

    def begin_read(self, work: Coroutine[object, object, Buffers]) -> Begun[Buffers] | None:
        """Run the first step of a read, and answer it if it ends there.

        Return the rest of the read otherwise, which ``finish_read`` must be called with at once.
        """
        awaited, data = begin_now(work)
        if data is None:
            return Begun(work, awaited)
        # It waited for nothing, as most reads do: neither a task nor a turn of the loop is needed.
        self.answer(data)
        return None

    def finish_read(self, read: Begun[Buffers], *, bytes_max: int) -> None:
        """Answer a read that waits, after ``begin_read``."""
        self._flow.reading_bytes += bytes_max
        response = self._responses.reserve()
        if isinstance(read.awaited, Wakeup):
            # It has looked at the log, so later requests need not wait for it.
            self._continue_when_woken(response, read, bytes_max)
            return
        self._flow.block(Block.READ)
        self._fill_in_task(response, self._read(go_on(read.work, read.awaited), bytes_max))
        # This runs after the first step of the task, which was scheduled before it.
        self._loop.call_soon(self._unblock, Block.READ)

    def _continue_when_woken(self, response: PendingResponse, read: Begun[Buffers], bytes_max: int) -> None:
        """Continue a read without a task, as long as it waits for news only."""
        work, wakeup = read
        if self._waiting_reads is None:
            self._waiting_reads = set()
        self._waiting_reads.add(work)

        def woken(_wakeup: asyncio.Future[None]) -> None:
            if self._waiting_reads is None:
                # The peer has disconnected, and the read is closed.
                return
            self._waiting_reads.discard(work)
            try:
                awaited, data = begin_now(work)
            except Exception:  # the edge of a connection, as in _fill
                logger.exception(_RESPONSE_FAILED, self.peer)
                self.abort()
                return
            if data is not None:
                self._flow.reading_bytes -= bytes_max
                self._settle(response, data)
            elif isinstance(awaited, Wakeup):
                self._continue_when_woken(response, Begun(work, awaited), bytes_max)
            else:
                self._fill_in_task(response, self._read(go_on(work, awaited), bytes_max))

        # A task would do this to what it waits for.
        wakeup._asyncio_future_blocking = False
        wakeup.add_done_callback(woken)

    def pause_requests(self) -> None:
        """Begin nothing more until ``resume_requests``."""
        self._flow.block(Block.BARRIER)

    def resume_requests(self) -> None:
        self._flow.unblock(Block.BARRIER)
        self._loop.call_soon(self._go_on)

    def pause_for_quota(self) -> None:
        """Read nothing and begin nothing until ``resume_after_quota``.

        The end of the connection by the broker ends this, too.
        """
        if self._state in (_OPEN, State.HALF_CLOSED):
            self._flow.block(Block.QUOTA)
            self._loop.call_soon(self._go_on)

    def resume_after_quota(self) -> None:
        self._unblock(Block.QUOTA)

    def discard_requests(self) -> None:
        """Drop the requests that were received and have not begun."""
        self._cutter.discard()

    # ── called by a listener ──

    @property
    def peer_address(self) -> str:
        """``host:port``."""
        transport = self._transport
        address = None if transport is None or self.is_closed else transport.get_extra_info("peername")
        if not address:
            return self.peer_host
        host, port = address[:2]
        return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"

    @property
    def is_closed(self) -> bool:
        return self._state is _CLOSED or self._transport is None or self._transport.is_closing()

    def close_after_answers(self) -> None:
        """Read no more, and close when the requests received so far are answered."""
        if self._state is _OPEN:
            self._watch(self._limits.frame_timeout_ms / 1000)
        self._state = next_state(self._state, Event.CLOSE)
        self._flow.unblock(Block.QUOTA)
        self._go_on()

    def end_login(self) -> None:
        """End, because the login is no longer valid: after the answers to what has begun.

        At once if a read waits: its answer would have what was written after the login ended.
        """
        self.discard_requests()
        if self._abandonable or self._waiting_reads:
            self.abort()
        else:
            self.close_after_answers()

    def abort(self) -> None:
        """Drop the connection; what its transport has not sent is lost."""
        if self._transport is not None:
            self._send_held()
            self._state = next_state(self._state, Event.CUT)
            self._transport.abort()

    # ── requests ──

    def _begin_requests(self) -> None:
        """Begin the requests that have arrived, as far as the limits allow."""
        flow, cutter = self._flow, self._cutter
        begun, end_s = 0, time.perf_counter() + TURN_S
        self._is_beginning = True
        try:
            while flow.may_begin() and (request := cutter.next_request()) is not None:
                self.begin(request)
                begun += 1
                if begun == REQUESTS_PER_TURN or time.perf_counter() > end_s:
                    flow.block(Block.TURN)
        except UnreadableStream as error:
            self.unreadable(str(error))
        except Exception:  # the edge of a connection, as in _fill
            logger.exception("a request of %s could not be handled; the connection is closed", self.peer)
            self.abort()
            return
        finally:
            self._is_beginning = False
        self._send_ready()
        if not cutter.has_partial_request():
            self._frame_since_s = None
            if self._pending is not None:
                self._hold_partial(0)
            return
        if begun or self._frame_since_s is None:
            self._frame_since_s = self._loop.time()
            self._watch(self._limits.frame_timeout_ms / 1000)
        size = cutter.partial_bytes()
        if (size > FREE_BYTES or self._pending is not None) and not self._hold_partial(size):
            cutter.discard()
            self._frame_since_s = None
            self._hold_partial(0)
            self._give_up(_NO_ROOM)

    def _hold_partial(self, size: int) -> bool:
        """Count ``size`` bytes of an incomplete request; False without room."""
        if self._pending is None:
            self._pending = HeldBytes(self._registry.pending)
        has_room = self._pending.set(size)
        if not size:
            self._pending = None
        return has_room

    @property
    def _client(self) -> tuple[str, str]:
        """Those of one host that have the same name take turns together."""
        return self.peer_host, self.client_id

    def _plan_turn(self) -> None:
        self._loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._is_turn_due = False
        self._unblock(Block.TURN)

    def _unblock(self, reason: Block) -> None:
        self._flow.unblock(reason)
        self._go_on()

    def _go_on(self) -> None:
        """Do what an event made possible: begin waiting requests, read or pause, end if all is done."""
        if self._is_beginning or self.is_closed:
            return
        has_request = self._cutter.has_request()
        if has_request and self._flow.may_begin():
            self._begin_requests()
            has_request = self._cutter.has_request()
        if has_request and self._flow.is_blocked_by(Block.TURN) and not self._is_turn_due:
            self._is_turn_due = True
            self._registry.turns.call(self._plan_turn, self._client)
        if self._state is _OPEN:
            # Requests that wait are as many as the peer sent before it was paused, and no more.
            self._set_reading(self._flow.may_read() and not has_request)
        elif self._state is not _LINGERING:
            self._set_reading(False)
            if self._responses.is_direct and not has_request:
                self._end()

    def _set_reading(self, may_read: bool) -> None:
        transport = self._transport
        if may_read is not self._is_read_paused or transport is None or transport.is_closing():
            return
        self._is_read_paused = not may_read
        if not may_read:
            transport.pause_reading()
            return
        self._last_byte_s = self._loop.time()
        if self._frame_since_s is not None:
            self._frame_since_s = self._last_byte_s
        transport.resume_reading()

    # ── responses ──

    async def _read(self, work: Awaitable[Buffers], bytes_max: int) -> Buffers:
        try:
            return await work
        finally:
            self._flow.reading_bytes -= bytes_max

    async def _fill(self, response: PendingResponse, work: Coroutine[object, object, Buffers]) -> None:
        try:
            data = await work
        except asyncio.CancelledError:
            # The peer has disconnected; or the work was cancelled, and then the order is lost as below.
            self.abort()
            raise
        except Exception:  # the edge of a connection: the order is lost, so it ends here
            logger.exception(_RESPONSE_FAILED, self.peer)
            self.abort()
            return
        self._settle(response, data)

    def _settle(self, response: PendingResponse, data: Buffers) -> None:
        for released in self._responses.fill(response, data):
            self._hold(released)
        if response.size > _HELD_BYTES_MAX:
            self._flow.block(Block.TURN)
        self._send_ready()
        if self._is_unread or self._responses.waiting_bytes > UNREAD_FREE_BYTES:
            self._count_unread()
        self._go_on()

    def _hold(self, data: Buffers) -> int:
        """Keep a response until ``_send_ready``, or send all kept ones if they are large; return its size in bytes.

        0 if it can no longer be sent.
        """
        if not data or self._state is _LINGERING or self.is_closed:
            return 0
        size = size_of(data)
        self.bytes_out += size
        held = self._held
        if held is None:
            held = self._held = []
        if isinstance(data, bytes):
            held.append(data)
        else:
            held.extend(data)
        self._held_bytes += size
        if self._held_bytes > _HELD_BYTES_MAX:
            self._send_held()
        return size

    def _send_ready(self) -> None:
        """Send what is held, unless this turn of the loop may bring more responses."""
        if self._held is None or self._is_beginning:
            return
        if self._responses.is_direct:
            self._send_held()
        elif not self._is_sent_soon:
            self._is_sent_soon = True
            self._loop.call_soon(self._send_held)

    def _send_held(self) -> None:
        held, size = self._held, self._held_bytes
        self._held, self._held_bytes, self._is_sent_soon = None, 0, False
        transport = self._transport
        if held is None or transport is None or transport.is_closing():
            return
        if len(held) == 1:
            transport.write(held[0])
        elif size <= _HELD_BYTES_MAX:
            transport.write(b"".join(held))
        else:
            transport.writelines(held)
        if self._is_unread:
            self._count_unread()

    @property
    def unread_bytes(self) -> int:
        """The bytes of responses that are known and not sent."""
        unsent = 0 if self._transport is None else self._transport.get_write_buffer_size()
        return unsent + self._responses.waiting_bytes

    def _count_unread(self) -> None:
        """Tell the listener what the connection holds."""
        if self._state is _CLOSED:
            return
        size = self.unread_bytes
        if size > UNREAD_FREE_BYTES:
            self._is_unread = True
            self._registry.unread.note(self, size)
        elif self._is_unread:
            self._is_unread = False
            self._registry.unread.forget(self)

    def break_off(self) -> None:
        """End soon, because the responses that connections hold take too much memory."""
        logger.warning(
            "%s is closed: it has left %d bytes of responses unread for the longest of all, and they have a limit",
            self.peer,
            self.unread_bytes,
        )
        self._loop.call_soon(self.abort)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        if self._abandonable is not None:
            self._abandonable.discard(task)
            if not self._abandonable:
                self._abandonable = None

    # ── the end ──

    def _give_up(self, reason: str) -> None:
        self.answer(self.refusal(reason))
        self.close_after_answers()

    def _end(self) -> None:
        """Everything is answered: shut down our side, and give the peer time to read the responses."""
        transport = self._transport
        assert transport is not None
        self._state = next_state(self._state, Event.ANSWERED)
        if self._state is _CLOSED:
            transport.close()
            return
        self._last_byte_s = self._loop.time()
        self._linger_until_s = self._last_byte_s + LINGER_S
        try:
            transport.write_eof()
        except OSError:  # it is gone already
            self.abort()
            return
        self._set_reading(True)
        self._watch(LINGER_QUIET_S)

    # ── asyncio.Protocol ──

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        # Beyond what is free it is told of (``pause_writing``), and one response is sent at a time.
        self._transport.set_write_buffer_limits(high=min(UNREAD_FREE_BYTES, self._limits.output_bytes_max))
        address = transport.get_extra_info("peername")
        self.peer = str(address) if address else self.peer_host
        self.tls_version = sys.intern(transport.get_extra_info("tls_version") or "")
        self.principal = Principal.parse(transport.get_extra_info("principal") or str(ANONYMOUS))
        refused = self._registry.opened(self)
        if refused is None:
            self._watch(self._limits.idle_timeout_ms / 1000)
        else:
            self._give_up(refused)

    def connection_lost(self, exc: Exception | None) -> None:
        self._state = next_state(self._state, Event.LOST)
        self._registry.closed(self)
        self._registry.deadlines.forget(self)
        for task in self._abandonable or ():
            # Soon, when all have begun: a coroutine that never begins is reported as a mistake.
            self._loop.call_soon(task.cancel)
        waiting, self._waiting_reads = self._waiting_reads, None
        for read in waiting or ():
            read.close()
        self._responses.clear()
        self._cutter.discard()
        if self._is_unread:
            self._is_unread = False
            self._registry.unread.forget(self)
        if self._pending is not None:
            self._hold_partial(0)

    def data_received(self, data: bytes) -> None:
        self._last_byte_s = self._loop.time()
        if not self.bytes_in and is_tls_hello(data):
            logger.warning("%s is closed: it speaks TLS, and this listener has none", self.peer)
            self.answer(HANDSHAKE_FAILURE_ALERT)
            self.close_after_answers()
        self.bytes_in += len(data)
        if self._state is not _OPEN:
            return
        self._cutter.receive(data)
        # What waits for a turn among those with much work has to go on doing so.
        registry = self._registry
        if (
            not registry.is_crowded
            or self._flow.is_blocked_by(Block.TURN)
            or registry.has_turn(self._plan_turn, self._client)
        ):
            self._begin_requests()
        else:
            self._flow.block(Block.TURN)
            self._is_turn_due = True
        self._go_on()

    def eof_received(self) -> bool:
        end_in_turn(self._peer_ended)
        # Half-open: the requests received so far are still answered.
        return True

    def _peer_ended(self) -> None:
        if self._state is State.HALF_CLOSED:
            # A loop that is told to pause and to read on before this turn reads the end again.
            return
        if self._state is _OPEN:
            self._watch(self._limits.frame_timeout_ms / 1000)
        self._state = next_state(self._state, Event.PEER_ENDED)
        if self._state is _CLOSED and self._transport is not None:
            self._transport.close()
        self._go_on()

    def pause_writing(self) -> None:
        self._flow.block(Block.OUTPUT)
        self._count_unread()
        self._go_on()

    def resume_writing(self) -> None:
        # Until now, the peer read.
        self._last_byte_s = self._loop.time()
        self._flow.unblock(Block.OUTPUT)
        self._count_unread()
        self._go_on()

    # ── time ──

    def _watch(self, delay_s: float) -> None:
        """Have ``look_at_clock`` called in ``delay_s`` at the latest."""
        if self._transport is not None:
            self._registry.deadlines.watch(self, delay_s)

    def look_at_clock(self) -> None:
        """Time the connection out if it is due. Called by ``Deadlines``."""
        now_s = self._loop.time()
        idle_s = self._limits.idle_timeout_ms / 1000
        frame_s = self._limits.frame_timeout_ms / 1000
        if self._state is not _OPEN:
            self._look_at_end(now_s, frame_s)
            return
        if self._flow.is_blocked_by(Block.OUTPUT):
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
        elif self._responses.is_direct and now_s - self._last_byte_s >= idle_s:
            self._give_up("no request arrived within the idle timeout")
            return
        left = [idle_s - (now_s - self._last_byte_s)]
        if self._frame_since_s is not None:
            left.append(frame_s - (now_s - self._frame_since_s))
        self._watch(max(0.05, min(left)))

    def _look_at_end(self, now_s: float, frame_s: float) -> None:
        transport = self._transport
        assert transport is not None
        unsent_bytes = transport.get_write_buffer_size()
        if unsent_bytes != self._unsent_bytes:
            self._unsent_bytes, self._unsent_since_s = unsent_bytes, now_s
        if unsent_bytes and now_s - self._unsent_since_s >= frame_s:
            # It took nothing of its last responses for so long that it never will.
            self.abort()
        elif self._state is not _LINGERING:
            self._watch(frame_s)
        elif not unsent_bytes and (
            now_s - self._last_byte_s >= LINGER_QUIET_S or now_s >= self._linger_until_s
        ):
            self._state = next_state(self._state, Event.LINGERED)
            transport.close()
        else:
            self._watch(LINGER_QUIET_S)
