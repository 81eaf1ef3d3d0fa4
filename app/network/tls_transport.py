"""TLS between the transport of a socket and the protocol above it.

``TlsTransport`` is a protocol for the transport below and a transport for the protocol
above. asyncio has such a class too, but cannot close one direction of a connection, hides
what its buffers hold, and does not report a peer that never finishes its handshake.
TLS itself is OpenSSL's, through ``ssl.SSLObject``, which does no I/O.

A session costs memory, so it begins with the first bytes of the peer, and the protocol
above begins with the end of the handshake.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol, cast

from ..patience import Timeout
from ..security.tls.listener_tls import ListenerTls
from ..security.tls.principal_mapping import NoPrincipal
from .first_bytes import begins_tls
from .handshake_thread import HandshakeThread

# A record of TLS holds at most this much.
_RECORD_BYTES = 16 * 1024
# Encrypted at once; more waits in plaintext until the socket has taken it.
_CHUNK_BYTES = 128 * 1024
_SOCKET_BUFFER_BYTES = 256 * 1024
# Certificates of clients are some KiB; OpenSSL has a limit of its own for a chain.
_HANDSHAKE_BYTES_MAX = 256 * 1024
# How long a peer may take to read why it was refused.
_LINGER_S = 1.0

PLAINTEXT = "plaintext"
TIMED_OUT = "timeout"
REFUSED_CERTIFICATE = "certificate"
CLOSED = "closed"
PROTOCOL = "protocol"
# The reasons of failed handshakes: labels of a metric.
FAILURES = (PLAINTEXT, TIMED_OUT, REFUSED_CERTIFICATE, CLOSED, PROTOCOL)

# Reasons of OpenSSL that are about a certificate, ours or the peer's.
_ABOUT_CERTIFICATES = ("CERTIFICATE", "UNKNOWN_CA", "NO_SHARED_SIGNATURE")


class HandshakeObserver(Protocol):
    """Learns how a handshake ends; called once per connection."""

    def handshake_completed(self, transport: TlsTransport) -> None: ...
    def handshake_failed(self, transport: TlsTransport, reason: str, detail: str) -> None: ...


class TlsTransport(asyncio.Transport, asyncio.Protocol):
    """One connection with TLS, on the side of the server."""

    __slots__ = (
        "_closing_timer",
        "_early",
        "_handshake_bytes",
        "_has_peer_ended",
        "_high",
        "_incoming",
        "_is_app_paused",
        "_is_closing",
        "_is_eof_sent",
        "_is_eof_wanted",
        "_is_over",
        "_is_shaking",
        "_is_socket_full",
        "_loop",
        "_make_protocol",
        "_observer",
        "_outgoing",
        "_plaintext_answer",
        "_protocol",
        "_session",
        "_socket",
        "_thread",
        "_timeout_s",
        "_tls",
        "_unsent",
        "_unsent_bytes",
        "principal",
    )

    def __init__(
        self,
        make_protocol: Callable[[], asyncio.Protocol],
        *,
        tls: ListenerTls,
        observer: HandshakeObserver,
        timeout_s: float,
        thread: HandshakeThread,
        plaintext_answer: bytes = b"",
    ) -> None:
        super().__init__()
        self._thread = thread
        # The session belongs to the thread until a step of the handshake ends.
        self._is_shaking = False
        # Bytes that have come meanwhile.
        self._early = b""
        self._make_protocol = make_protocol
        self._tls = tls
        self._observer = observer
        self._timeout_s = timeout_s
        self._plaintext_answer = plaintext_answer
        self._loop = asyncio.get_running_loop()
        self._socket: asyncio.Transport | None = None
        self._session: ssl.SSLObject | None = None
        self._incoming = self._outgoing = cast("ssl.MemoryBIO", None)
        self._protocol: asyncio.Protocol | None = None
        self._handshake_bytes = 0
        # The handshake has ended, well or not; nothing more is read after a bad end.
        self._is_over = False
        self._closing_timer: asyncio.TimerHandle | Timeout | None = None
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        self._high = _SOCKET_BUFFER_BYTES
        self._is_socket_full = False
        self._is_app_paused = False
        self._is_closing = False
        self._is_eof_wanted = False
        self._is_eof_sent = False
        self._has_peer_ended = False
        self.principal = ""

    # ── the handshake ──

    def _begin(self, data: bytes) -> None:
        """Take the first bytes of the peer."""
        if not begins_tls(data):
            self._fail(PLAINTEXT, "it does not speak TLS", answer=self._plaintext_answer)
            return
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._session = self._tls.context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._shake_hands(data)

    def _shake_hands(self, data: bytes) -> None:
        session = self._session
        assert session is not None
        self._handshake_bytes += len(data)
        if self._is_shaking:
            self._early += data
            return
        self._is_shaking = True
        if self._socket is not None and not self._socket.is_closing():
            self._socket.pause_reading()
        self._incoming.write(data)

        def step() -> Exception | None:
            # A peer that has gone meanwhile is not worth a signature.
            if not self._is_over:
                try:
                    session.do_handshake()
                except ssl.SSLError as error:
                    return error
            return None

        self._thread.run(step, self._end_step)

    def _end_step(self, error: Exception | None) -> None:
        """Go on with what a step of the handshake has come to."""
        self._is_shaking = False
        early, self._early = self._early, b""
        below = self._socket
        if self._is_over or below is None:
            return
        if not below.is_closing():
            below.resume_reading()
        if isinstance(error, ssl.SSLWantReadError):
            self._send_encrypted()
            if self._handshake_bytes > _HANDSHAKE_BYTES_MAX:
                self._fail(PROTOCOL, f"its handshake exceeds {_HANDSHAKE_BYTES_MAX} bytes")
            elif early:
                self._handshake_bytes -= len(early)
                self._shake_hands(early)
        elif isinstance(error, ssl.SSLError):
            # OpenSSL has left an alert for the peer.
            about_certificate = any(word in (error.reason or "") for word in _ABOUT_CERTIFICATES)
            reason = REFUSED_CERTIFICATE if about_certificate else PROTOCOL
            self._fail(reason, _words_of(error), answer=self._outgoing.read())
        else:
            self._incoming.write(early)
            self._complete()

    def _complete(self) -> None:
        session = self._session
        assert session is not None
        try:
            self.principal = self._tls.principal(session)
        except NoPrincipal as error:
            self._fail(REFUSED_CERTIFICATE, str(error), answer=self._outgoing.read())
            return
        self._end_handshake()
        self._send_encrypted()
        self._observer.handshake_completed(self)
        self._protocol = self._make_protocol()
        self._protocol.connection_made(self)
        # Requests may have come with the end of the handshake.
        self._receive()

    def _end_handshake(self) -> None:
        self._is_over = True
        if self._closing_timer is not None:
            self._closing_timer.cancel()
            self._closing_timer = None

    def _fail(self, reason: str, detail: str, *, answer: bytes = b"") -> None:
        """End the connection before a protocol has begun; the peer gets a moment to read ``answer``."""
        if self._is_over:
            return
        self._end_handshake()
        self._observer.handshake_failed(self, reason, detail)
        below = self._socket
        if below is None or below.is_closing():
            return
        if not answer:
            below.abort()
            return
        below.write(answer)
        below.write_eof()
        # Closing on unread bytes would reset the connection, and take the answer with it.
        self._closing_timer = self._loop.call_later(_LINGER_S, below.abort)

    def _time_out(self) -> None:
        self._fail(TIMED_OUT, f"it did not complete its handshake within {self._timeout_s:g} s")

    # ── from the socket: asyncio.Protocol ──

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast("asyncio.Transport", transport)
        self._socket.set_write_buffer_limits(high=min(_SOCKET_BUFFER_BYTES, self._high))
        self._closing_timer = Timeout(self._loop, self._timeout_s, self._time_out)

    def data_received(self, data: bytes) -> None:
        if self._protocol is not None:
            if not self._has_peer_ended:
                self._incoming.write(data)
                self._receive()
        elif not self._is_over:
            if self._session is None:
                self._begin(data)
            else:
                self._shake_hands(data)

    def eof_received(self) -> bool:
        if self._protocol is not None:
            self._end_of_peer()
        elif self._is_over:
            return False
        else:
            self._fail(CLOSED, "it closed the connection before the end of the handshake")
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closing = True
        self._unsent.clear()
        self._unsent_bytes = 0
        protocol, self._protocol = self._protocol, None
        if protocol is not None:
            protocol.connection_lost(exc)
        else:
            self._fail(CLOSED, "it closed the connection before the end of the handshake")
        if self._closing_timer is not None:
            self._closing_timer.cancel()

    def pause_writing(self) -> None:
        self._is_socket_full = True

    def resume_writing(self) -> None:
        self._is_socket_full = False
        self._send()

    def _receive(self) -> None:
        """Decrypt what has arrived, and pass it on in one piece."""
        session = self._session
        pieces: list[bytes] = []
        assert session is not None
        has_ended = False
        try:
            while piece := session.read(_RECORD_BYTES):
                pieces.append(piece)
            has_ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            has_ended = True
        except ssl.SSLError:
            if not self._is_eof_sent:
                # A record that cannot be decrypted: nothing after it can be trusted.
                self._send_encrypted()
                self.abort()
                return
            has_ended = True
        self._send_encrypted()
        if pieces and self._protocol is not None:
            self._protocol.data_received(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        if has_ended:
            self._end_of_peer()

    def _end_of_peer(self) -> None:
        if self._has_peer_ended or self._protocol is None:
            return
        self._has_peer_ended = True
        if not self._protocol.eof_received():
            self.close()

    # ── from the protocol: asyncio.Transport ──

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._append(data)
        self._send()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        parts = list(list_of_data)
        if sum(map(len, parts)) <= _RECORD_BYTES:
            self._append(b"".join(parts))
        else:
            for part in parts:
                self._append(part)
        self._send()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """Send no more, but go on reading."""
        self._is_eof_wanted = True
        self._send()

    def close(self) -> None:
        """Send what is left, and close; nothing more is read."""
        if self._is_closing:
            return
        self._is_closing = True
        if self._socket is not None and not self._socket.is_closing():
            self._socket.pause_reading()
            self._send()

    def abort(self) -> None:
        self._is_closing = True
        if self._socket is not None:
            self._socket.abort()

    def is_closing(self) -> bool:
        return self._is_closing or self._socket is None or self._socket.is_closing()

    def pause_reading(self) -> None:
        if self._socket is not None:
            self._socket.pause_reading()

    def resume_reading(self) -> None:
        if self._socket is not None and not self._is_closing:
            self._socket.resume_reading()

    def is_reading(self) -> bool:
        return self._socket is not None and self._socket.is_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Pause the protocol when more than ``high`` bytes wait; it resumes at a quarter of that."""
        self._high = _SOCKET_BUFFER_BYTES if high is None else high
        if self._socket is not None:
            self._socket.set_write_buffer_limits(high=min(_SOCKET_BUFFER_BYTES, self._high))

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._high // 4, self._high

    def get_write_buffer_size(self) -> int:
        return self._unsent_bytes + (0 if self._socket is None else self._socket.get_write_buffer_size())

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = cast("asyncio.Protocol", protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None, "the handshake has not ended"
        return self._protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what asyncio's transports know, ``principal`` and ``tls_version``."""
        session = self._session
        if session is not None:
            match name:
                case "principal":
                    return self.principal
                case "tls_version":
                    return session.version()
                case "ssl_object":
                    return session
                case "sslcontext":
                    return session.context
                case "peercert":
                    return session.getpeercert()
                case "cipher":
                    return session.cipher()
                case _:
                    pass
        return default if self._socket is None else self._socket.get_extra_info(name, default)

    # ── sending ──

    def _append(self, data: bytes | bytearray | memoryview) -> None:
        if data and not self._is_closing and not self._is_eof_wanted:
            self._unsent.append(memoryview(data))
            self._unsent_bytes += len(data)

    def _send(self) -> None:
        """Encrypt and send what the socket takes, and do what waits for the end of it."""
        below, session, unsent = self._socket, self._session, self._unsent
        if below is None or session is None or below.is_closing():
            return
        try:
            while unsent and not self._is_socket_full:
                room = _CHUNK_BYTES
                while unsent and room > 0:
                    data = unsent[0]
                    written = session.write(data[:room])
                    room -= written
                    self._unsent_bytes -= written
                    if written == len(data):
                        unsent.popleft()
                    else:
                        unsent[0] = data[written:]
                self._send_encrypted()
        except ssl.SSLError:
            self.abort()
            return
        if not unsent:
            self._end_sending(below)
        self._pace_protocol(below)

    def _end_sending(self, below: asyncio.Transport) -> None:
        if (self._is_eof_wanted or self._is_closing) and not self._is_eof_sent:
            self._is_eof_sent = True
            self._send_close_notify()
            if not self._is_closing:
                below.write_eof()
        if self._is_closing:
            below.close()

    def _send_close_notify(self) -> None:
        assert self._session is not None
        # It reports that it waits for the peer's, which need not come.
        with contextlib.suppress(ssl.SSLError):
            self._session.unwrap()
        self._send_encrypted()

    def _send_encrypted(self) -> None:
        below = self._socket
        if self._outgoing.pending and below is not None and not below.is_closing():
            below.write(self._outgoing.read())

    def _pace_protocol(self, below: asyncio.Transport) -> None:
        protocol = self._protocol
        if protocol is None:
            return
        size = self._unsent_bytes + below.get_write_buffer_size()
        if not self._is_app_paused:
            if size > self._high:
                self._is_app_paused = True
                protocol.pause_writing()
        elif size <= self._high // 4 or not (self._unsent or self._is_socket_full):
            self._is_app_paused = False
            protocol.resume_writing()


def _words_of(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    return (error.reason or str(error)).lower().replace("_", " ")
