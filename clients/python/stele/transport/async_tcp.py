"""The binary protocol for asyncio, pipelined in request order.

Calls share one connection. Responses come in request order, so a long poll would delay
every response after it. Each pending long poll therefore has a connection of its own,
which is kept for the next.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

from .. import forks
from ..config import Endpoint
from ..errors import (
    ClosedError,
    ConnectionLostError,
    ProtocolError,
    RequestTimedOutError,
    SteleClientError,
)
from ..operations.base import Operation, result_of_frame
from ..wire.framing import FrameError, FrameReader
from .base import Endpoints, backoff, frame_of, lost, timed_out, unavailable
from .login import LOGIN_TIMEOUT_S, RENEW_AFTER, Login
from .tls import client_context, is_about_own_certificate, refused

R = TypeVar("R")

# More requests would only wait in the broker's queue instead of this one.
UNANSWERED_MAX = 4096
UNSENT_BYTES_MAX = 32 * 1024 * 1024
# A response is as large as its fetch allows; a larger frame is not of this protocol.
ANSWER_BYTES_MAX = 256 * 1024 * 1024
IDLE_LONG_POLL_CONNECTIONS_MAX = 16
# Operations of one call_all under way. Each may have encoded a frame of 1 MiB that waits for room.
WINDOW_MAX = 64
# Responses come in order. If one is overdue and nothing else arrived for this long, the
# connection has stalled, and a new one is needed.
STALLED_AFTER_S = 10.0

# Of an operation that is under way.
_NO_OUTCOME = SteleClientError("the operation has not ended")


@dataclass(slots=True, eq=False)
class _Slot:
    """A request in the pipeline; it stays there after its caller was cancelled."""

    frame: bytes
    answer: asyncio.Future[tuple[int, bytes]]
    is_sent: bool = False
    sent_at_s: float = 0.0


class AsyncTcpTransport:
    """An ``AsyncTransport`` over TCP, bound to the event loop of its first call."""

    fetches_many = True
    keeps_order = True
    broker_partitions_by_key = False

    def __init__(self, endpoint: Endpoint, *, connect_timeout_s: float) -> None:
        self._endpoints = Endpoints(endpoint)
        self._connect_timeout_s = connect_timeout_s
        self._tls = client_context(endpoint)
        self._login = Login(endpoint.credentials, endpoint.all) if endpoint.credentials else None
        self._calls = self._pipeline()
        self._idle_long_polls: list[Pipeline] = []
        self._busy_long_polls: set[Pipeline] = set()
        self._is_closed = False
        forks.in_child(self._renew_in_child)

    def _renew_in_child(self) -> None:
        pipelines = (self._calls, *self._idle_long_polls, *self._busy_long_polls)
        forks.leave(pipeline.fileno() for pipeline in pipelines)
        self._calls = self._pipeline()
        self._idle_long_polls = []
        self._busy_long_polls = set()

    def _pipeline(self) -> Pipeline:
        return Pipeline(
            self._endpoints, connect_timeout_s=self._connect_timeout_s, tls=self._tls, login=self._login
        )

    def _long_poll(self) -> Pipeline:
        """Return a connection for one long poll.

        It is an idle one if its session lasts for a while.
        """
        while self._idle_long_polls:
            pipeline = self._idle_long_polls.pop()
            if not pipeline.must_renew:
                return pipeline
            pipeline.abort()
        return self._pipeline()

    async def call(self, operation: Operation[R], *, timeout_s: float) -> R:
        if self._is_closed:
            raise ClosedError("client")
        if operation.wait_s <= 0:
            frame_type, body = await self._calls.exchange(frame_of(operation), timeout_s=timeout_s)
            return result_of_frame(operation, frame_type, body)
        pipeline = self._long_poll()
        self._busy_long_polls.add(pipeline)
        is_reusable = False
        try:
            answer = await pipeline.exchange(frame_of(operation), timeout_s=timeout_s + operation.wait_s)
            is_reusable = len(self._idle_long_polls) < IDLE_LONG_POLL_CONNECTIONS_MAX
        finally:
            self._busy_long_polls.discard(pipeline)
            if is_reusable and not self._is_closed:
                self._idle_long_polls.append(pipeline)
            else:
                # After a cancelled wait, the connection stays busy until the broker's wait ends.
                pipeline.abort()
        return result_of_frame(operation, *answer)

    async def call_all(
        self, operations: Sequence[Operation[R]], *, timeout_s: float
    ) -> list[R | SteleClientError]:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        outcomes: list[R | SteleClientError] = []
        left = iter(operations)

        async def execute() -> None:
            for operation in left:
                index = len(outcomes)
                outcomes.append(_NO_OUTCOME)
                try:
                    outcomes[index] = await self.call(
                        operation, timeout_s=max(deadline_s - loop.time(), 0.001)
                    )
                except SteleClientError as error:
                    outcomes[index] = error

        await asyncio.gather(*(execute() for _ in range(min(WINDOW_MAX, len(operations)))))
        return outcomes

    async def close(self) -> None:
        self._is_closed = True
        pipelines = [self._calls, *self._idle_long_polls, *self._busy_long_polls]
        self._idle_long_polls.clear()
        for pipeline in pipelines:
            pipeline.abort()
        await asyncio.gather(*(pipeline.wait_closed() for pipeline in pipelines))


class Pipeline(asyncio.Protocol):
    """A connection to one of the endpoints, opened when there is a frame to send.

    Frames are sent in the order of the calls. ``_unsent`` holds frames until there is a
    connection and room in the socket. ``_unanswered`` is the FIFO queue of requests
    that responses are matched with.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        *,
        connect_timeout_s: float,
        tls: ssl.SSLContext | None = None,
        login: Login | None = None,
    ) -> None:
        self._endpoints = endpoints
        # The one that it is connected to, or was at last.
        self._endpoint = endpoints.current
        self._login = login
        # Nothing but the login is sent before the login has ended.
        self._is_logged_in = login is None
        self._renew_at_s: float | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._connect_timeout_s = connect_timeout_s
        self._tls = tls
        self._unsent: deque[_Slot] = deque()
        self._unsent_bytes = 0
        self._unanswered: deque[_Slot] = deque()
        self._room_waiters: deque[asyncio.Future[None]] = deque()
        self._transport: asyncio.Transport | None = None
        self._reader = FrameReader(frame_bytes_max=ANSWER_BYTES_MAX)
        self._is_paused = False
        self._is_send_due = False
        self._connecting: asyncio.Task[None] | None = None
        self._failure: SteleClientError | None = None
        self._disconnected: asyncio.Event | None = None
        self._last_received_s = 0.0
        self._is_closed = False

    # ── callers ──

    async def exchange(self, frame: bytes, *, timeout_s: float) -> tuple[int, bytes]:
        """Send ``frame`` and return ``(type, body)`` of the response.

        Raises as ``AsyncTransport.call`` does.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        slot: _Slot | None = None
        try:
            async with asyncio.timeout_at(deadline_s):
                if self._room_waiters or not self._has_room():
                    await self._wait_for_room()
                if self._is_closed:
                    raise ClosedError("client")
                slot = _Slot(frame, loop.create_future())
                self._unsent.append(slot)
                self._unsent_bytes += len(frame)
                self._make_progress()
                self._wake_waiters()
                return await slot.answer
        except TimeoutError:
            if slot is None or not slot.is_sent:
                self._forget_unsent(slot)
                raise unavailable(self._endpoint, f"nothing could be sent within {timeout_s:g} s") from None
            if loop.time() - max(slot.sent_at_s, self._last_received_s) >= STALLED_AFTER_S:
                self._give_up(lost(self._endpoint, "it had stalled"))
            raise timed_out(self._endpoint, timeout_s) from None
        except asyncio.CancelledError:
            self._forget_unsent(slot)
            raise

    def abort(self) -> None:
        """Close the connection for good; pending requests fail."""
        self._is_closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        if self._renewing is not None:
            self._renewing.cancel()
        if self._transport is not None:
            self._transport.abort()
        self._fail_unsent(lost(self._endpoint, "it was closed"))

    def fileno(self) -> int:
        """Return the descriptor of the socket; -1 if there is none."""
        socket = None if self._transport is None else self._transport.get_extra_info("socket")
        return -1 if socket is None else socket.fileno()

    async def wait_closed(self) -> None:
        for task in (self._connecting, self._renewing):
            if task is not None:
                await asyncio.wait([task])
        if self._disconnected is not None:
            await self._disconnected.wait()

    # ── back-pressure on callers ──

    def _has_room(self) -> bool:
        return (
            len(self._unsent) + len(self._unanswered) < UNANSWERED_MAX
            and self._unsent_bytes < UNSENT_BYTES_MAX
        )

    async def _wait_for_room(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._room_waiters.append(waiter)
        try:
            await waiter
        except BaseException:
            if waiter in self._room_waiters:
                self._room_waiters.remove(waiter)
            else:
                self._wake_waiters()
            raise

    def _wake_waiters(self) -> None:
        """Wake the first waiter, which wakes the next once it has taken its room."""
        while self._room_waiters and (self._is_closed or self._has_room()):
            waiter = self._room_waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    # ── sending ──

    def _make_progress(self) -> None:
        if self._transport is None:
            if self._connecting is None or self._connecting.done():
                self._connecting = asyncio.get_running_loop().create_task(self._connect())
        elif self._is_logged_in and not self._is_paused and not self._is_send_due:
            # One write for all calls of this iteration of the loop.
            self._is_send_due = True
            asyncio.get_running_loop().call_soon(self._send)

    def _send(self) -> None:
        self._is_send_due = False
        if self._transport is None or self._is_paused or not self._is_logged_in:
            return
        if self.must_renew:
            # Other requests wait meanwhile, because the session may be over already.
            self._is_logged_in = False
            self._renewing = asyncio.get_running_loop().create_task(self._renew(self._transport))
            return
        frames: list[bytes] = []
        now_s = asyncio.get_running_loop().time()
        while self._unsent:
            slot = self._unsent.popleft()
            self._unsent_bytes -= len(slot.frame)
            if slot.answer.done():
                continue
            slot.is_sent = True
            slot.sent_at_s = now_s
            self._unanswered.append(slot)
            frames.append(slot.frame)
            slot.frame = b""
        if frames:
            self._transport.write(frames[0] if len(frames) == 1 else b"".join(frames))
        self._wake_waiters()

    def _forget_unsent(self, slot: _Slot | None) -> None:
        if slot is not None and not slot.is_sent and slot in self._unsent:
            self._unsent.remove(slot)
            self._unsent_bytes -= len(slot.frame)
            self._wake_waiters()

    # ── connecting ──

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        give_up_s = loop.time() + self._connect_timeout_s
        cause: object = f"no connection within {self._connect_timeout_s:g} s"
        pauses = backoff()
        while True:
            endpoint = self._endpoint = self._endpoints.current
            try:
                async with asyncio.timeout(self._endpoints.attempt_s(give_up_s - loop.time())):
                    await loop.create_connection(lambda: self, endpoint.host, endpoint.port, ssl=self._tls)
            except TimeoutError:
                pass
            except (ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:
                # The broker may have stopped, or have too many connections.
                cause = error
            except ssl.SSLError as error:
                self._fail_unsent(refused(self._endpoint, error))
                return
            except OSError as error:
                cause = error
            if self._transport is not None:
                try:
                    await self._log_in()
                except ConnectionLostError as error:
                    cause = error
                except SteleClientError as error:
                    self._refuse_login(error)
                    return
            if self._transport is not None or not self._unsent:
                return
            pause_s = next(pauses) if self._endpoints.move_on(endpoint) else 0.0
            if loop.time() + pause_s >= give_up_s:
                self._fail_unsent(unavailable(self._endpoint, cause))
                return
            await asyncio.sleep(pause_s)

    # ── login ──

    @property
    def must_renew(self) -> bool:
        """Whether the session ends soon."""
        at_s = self._renew_at_s
        return at_s is not None and asyncio.get_running_loop().time() >= at_s

    async def _log_in(self) -> None:
        """Log the connection in, for the first time or again.

        Raises:
            ConnectionLostError, RequestTimedOutError: the connection broke, or the broker was silent.
            SteleClientError: the broker refused the login.
        """
        if self._login is None:
            return
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        attempt = self._login.begin(self._endpoint)
        # A token may take a while, and so does the first derivation of a key from a password.
        frame: bytes | None = await asyncio.to_thread(attempt.first)
        while frame is not None:
            answer = await self._exchange_login(frame)
            frame = await asyncio.to_thread(attempt.receive, *answer)
        lifetime_s = attempt.lifetime_ms / 1000
        self._renew_at_s = begun_s + lifetime_s * RENEW_AFTER if lifetime_s else None
        self._is_logged_in = True
        self._send()

    async def _exchange_login(self, frame: bytes) -> tuple[int, bytes]:
        """Send a frame past those that wait for the login; responses come in order."""
        if self._transport is None:
            raise lost(self._endpoint, "closed by the broker during the login")
        loop = asyncio.get_running_loop()
        slot = _Slot(b"", loop.create_future(), is_sent=True, sent_at_s=loop.time())
        self._unanswered.append(slot)
        self._transport.write(frame)
        try:
            async with asyncio.timeout(LOGIN_TIMEOUT_S):
                return await slot.answer
        except TimeoutError:
            raise timed_out(self._endpoint, LOGIN_TIMEOUT_S) from None

    async def _renew(self, transport: asyncio.Transport) -> None:
        """Log in again before the session ends."""
        try:
            await self._log_in()
        except SteleClientError as error:
            if transport is self._transport:
                self._give_up(error)

    def _refuse_login(self, error: SteleClientError) -> None:
        if isinstance(error, RequestTimedOutError):
            # The requests of the callers have not been sent.
            error = unavailable(self._endpoint, f"the login did not end: {error.message}")
        self._fail_unsent(error)
        self._give_up(error)

    def _fail_unsent(self, error: SteleClientError) -> None:
        while self._unsent:
            slot = self._unsent.popleft()
            if not slot.answer.done():
                slot.answer.set_exception(error.twin())
        self._unsent_bytes = 0
        self._wake_waiters()

    # ── asyncio.Protocol ──

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Those of uvloop are no subclasses.
        self._transport = cast("asyncio.Transport", transport)
        self._reader = FrameReader(frame_bytes_max=ANSWER_BYTES_MAX)
        self._is_paused = False
        self._is_logged_in = self._login is None
        self._renew_at_s = None
        self._failure = None
        self._disconnected = asyncio.Event()
        if self._is_closed:
            self._transport.abort()
        else:
            self._send()

    def data_received(self, data: bytes) -> None:
        self._last_received_s = asyncio.get_running_loop().time()
        try:
            for frame_type, body in self._reader.feed(data):
                if not self._unanswered:
                    raise ProtocolError("the broker sent a response without a request")
                slot = self._unanswered.popleft()
                if not slot.answer.done():
                    slot.answer.set_result((frame_type, body))
        except FrameError as error:
            self._give_up(
                ProtocolError(
                    f"the response is not of the binary protocol: {error}; is this the binary listener's port?"
                )
            )
        except ProtocolError as error:
            self._give_up(error)
        self._wake_waiters()

    def _give_up(self, error: SteleClientError) -> None:
        self._failure = error
        if self._transport is not None:
            self._transport.abort()

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        error = self._failure or lost(self._endpoint, exc or "closed by the broker")
        if isinstance(exc, ssl.SSLError) and is_about_own_certificate(exc):
            error = refused(self._endpoint, exc)
        slots, self._unanswered = self._unanswered, deque()
        if slots and not self._is_closed:
            # Another broker is next: this one may be paused, or cut off from what it needs.
            self._endpoints.move_on(self._endpoint)
        for slot in slots:
            if not slot.answer.done():
                slot.answer.set_exception(error.twin())
        if self._disconnected is not None:
            self._disconnected.set()
        self._wake_waiters()
        if self._unsent:
            self._make_progress()
