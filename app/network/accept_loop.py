"""Accept the connections of one listener.

Limits apply before a handshake begins. Connections over the accept rate wait in the
backlog of the system, and so do all when the process has no file left for them.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass

from ..security.tls.listener_tls import ListenerTls
from .accept_rate import AcceptRate
from .admission import Admission
from .binding import listen
from .handshake_thread import HandshakeThread
from .tls_transport import FAILURES, TlsTransport

logger = logging.getLogger(__name__)

# Connections accepted in one turn of the loop; about 40 µs each. One per turn did not lower the p99 of other clients
# during a flood of handshakes.
_PER_TURN = 4
# The process or the system has no more files or memory for sockets.
_SCARCE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_SCARCE_PAUSE_S = 1.0
_LOG_EVERY_S = 10.0
# Refused connections that are kept open for a moment, so that their clients do not try again at once.
_HELD_MAX = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptOptions:
    """The settings of an accept loop; see ``settings`` for the reasons."""

    handshake_timeout_ms: int = 10_000
    # Connections per second; None means unlimited.
    rate_max: float | None = None
    # What a plaintext client at a port with TLS gets to read.
    plaintext_answer: bytes = b""
    # Counts a connection of a listener from an address; returns for how many ms it is refused.
    address_delay_ms: Callable[[str, str], int] | None = None


class AcceptLoop:
    """Accepts connections, and makes a protocol for each; a ``HandshakeObserver``.

    ``make_protocol`` gets the address of the peer, and None or the reason why the connection is refused,
    which the protocol tells its peer. It must call ``admission.leave`` with that address when a connection
    that was not refused is closed: a transport no longer knows it if the peer has reset the connection. With TLS, it is called after the handshake, and never for a connection
    that is refused.
    """

    def __init__(
        self,
        name: str,
        make_protocol: Callable[[str, str | None], asyncio.Protocol],
        *,
        admission: Admission,
        options: AcceptOptions,
        tls: ListenerTls | None = None,
    ) -> None:
        self.tls = tls
        self.handshakes = 0
        self.handshakes_failed: dict[str, int] = dict.fromkeys(FAILURES, 0)
        self.accept_failures = 0
        self._name = name
        self._make_protocol = make_protocol
        self._admission = admission
        self._options = options
        self._rate = AcceptRate(options.rate_max)
        self._listening: socket.socket | None = None
        self._is_accepting = False
        self._resumes: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._thread = HandshakeThread(self._loop)
        self._opening: set[asyncio.Task[None]] = set()
        # Connections over the rate of their address, with the timers that close them.
        self._held: dict[socket.socket, asyncio.TimerHandle] = {}
        # Connections in their handshake, with the addresses they were admitted for.
        self._shaking: dict[TlsTransport, str] = {}
        self._unlogged = 0
        self._logged_s = -_LOG_EVERY_S

    @property
    def handshakes_pending(self) -> int:
        return len(self._shaking)

    def start(self, listening: socket.socket) -> None:
        """Accept connections from now on. Takes over ``listening``, which is bound.

        Raises:
            OSError: another process listens there by now.
        """
        listening.setblocking(False)
        listen(listening, self._name)
        self._listening = listening
        self._resume()

    def close(self) -> None:
        """Accept no more, and drop the connections in their handshake."""
        self._pause()
        if self._listening is not None:
            self._listening.close()
            self._listening = None
        for held in list(self._held):
            self._let_go(held)
        shaking, self._shaking = self._shaking, {}
        for transport, host in shaking.items():
            self._admission.leave(host)
            transport.abort()
        self._thread.close()

    # ── accepting ──

    def _resume(self) -> None:
        self._resumes = None
        if self._listening is not None:
            self._is_accepting = True
            self._loop.add_reader(self._listening.fileno(), self._accept)

    def _pause(self, delay_s: float | None = None) -> None:
        """Leave connections in the backlog, for ``delay_s`` or for good."""
        if self._is_accepting and self._listening is not None:
            self._is_accepting = False
            self._loop.remove_reader(self._listening.fileno())
        if self._resumes is not None:
            self._resumes.cancel()
        self._resumes = None if delay_s is None else self._loop.call_later(delay_s, self._resume)

    def _accept(self) -> None:
        for _ in range(_PER_TURN):
            listening = self._listening
            if listening is None:
                return
            if self._thread.is_full:
                self._pause()
                self._thread.when_free(self._resume)
                return
            wait_s = self._rate.wait_s(self._loop.time())
            if wait_s:
                self._pause(wait_s)
                return
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                self._rate.give_back()
                return
            except OSError as error:
                if error.errno not in _SCARCE:
                    raise
                self._rate.give_back()
                self.accept_failures += 1
                self._log(f"cannot accept connections: {error.strerror}; it tries again every second")
                self._pause(_SCARCE_PAUSE_S)
                return
            self._take(accepted, str(address[0]) if address else "?")

    def _take(self, accepted: socket.socket, host: str) -> None:
        count = self._options.address_delay_ms
        delay_ms = 0 if count is None else count(self._name, host)
        if delay_ms:
            self._hold(accepted, host, delay_ms)
            return
        refusal = self._admission.admit(host, accepted.fileno())
        if refusal is not None and (self.tls is not None or not self._admission.may_stay(accepted.fileno())):
            # With TLS, the reason would cost the handshake that the limits are to save.
            accepted.close()
            return
        accepted.setblocking(False)
        task = self._loop.create_task(self._open(accepted, host, refusal))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    def _hold(self, accepted: socket.socket, host: str, delay_ms: int) -> None:
        """Close the connection, after ``delay_ms`` unless too many wait already."""
        self._log(f"refused {host}: it connects faster than its connection_creation_rate allows")
        if len(self._held) >= _HELD_MAX or not self._admission.may_stay(accepted.fileno()):
            accepted.close()
        else:
            self._held[accepted] = self._loop.call_later(delay_ms / 1000, self._let_go, accepted)

    def _let_go(self, held: socket.socket) -> None:
        self._held.pop(held).cancel()
        held.close()

    async def _open(self, accepted: socket.socket, host: str, refusal: str | None) -> None:
        shaking: TlsTransport | None = None

        def make() -> asyncio.Protocol:
            nonlocal shaking
            tls = self.tls
            if tls is None:
                return self._make_protocol(host, refusal)
            shaking = TlsTransport(
                lambda: self._make_protocol(host, None),
                tls=tls,
                observer=self,
                timeout_s=self._options.handshake_timeout_ms / 1000,
                thread=self._thread,
                plaintext_answer=self._options.plaintext_answer,
            )
            self._shaking[shaking] = host
            return shaking

        try:
            await self._loop.connect_accepted_socket(make, accepted)
        except OSError:
            # The peer has gone already. No protocol began, so nothing else makes room again.
            accepted.close()
            if shaking is not None:
                self._shaking.pop(shaking)
            if refusal is None:
                self._admission.leave(host)

    # ── HandshakeObserver ──

    def handshake_completed(self, transport: TlsTransport) -> None:
        del self._shaking[transport]
        self.handshakes += 1

    def handshake_failed(self, transport: TlsTransport, reason: str, detail: str) -> None:
        host = self._shaking.pop(transport, None)
        if host is None:
            # Dropped by ``close``.
            return
        self._admission.leave(host)
        self.handshakes_failed[reason] += 1
        self._log(f"no TLS with {host}: {detail}")

    def _log(self, text: str) -> None:
        self._unlogged += 1
        now_s = self._loop.time()
        if now_s - self._logged_s >= _LOG_EVERY_S:
            others = "" if self._unlogged == 1 else f" (and {self._unlogged - 1} more since the last message)"
            logger.warning("%s: %s%s", self._name, text, others)
            self._unlogged, self._logged_s = 0, now_s
