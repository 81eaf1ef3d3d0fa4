"""One connection to a broker of the source: frames, versions, TLS and login.

Requests are answered in their order, so a connection serves one caller well: ``Source`` has one for fetches and one for
the rest per broker. What a broker sends is never trusted: a size is checked before anything is allocated for it, and
bytes that nobody asked for end the connection.
"""

from __future__ import annotations

import asyncio
import secrets
import ssl
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, cast

from ...wire import schema
from ...wire.kafka.api import Api
from ...wire.kafka.api_versions import API_VERSIONS_API, ApiVersionsRequest
from ...wire.kafka.headers import SIZE, request_head
from ...wire.kafka.security import (
    SASL_AUTHENTICATE_API,
    SASL_HANDSHAKE_API,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from ..definition import Address
from ..errors import (
    SourceError,
    SourceLacks,
    SourceMalformed,
    SourceRefused,
    SourceUnavailable,
    error_name,
)
from ..properties import SourceConfig
from .sasl import exchange
from .tls import context_of, refusal

# A fetch of 32 MiB at most, with the first batch whole; the target takes none of more than 16 MiB.
RESPONSE_BYTES_MAX = 64 << 20
_SCRATCH_BYTES = 64 << 10
# Requests of one connection that wait for their responses.
_PENDING_MAX = 16
# A broker that throttles longer than this is asked again all the same.
_THROTTLE_MAX_S = 60.0
# A connection is renewed when this part of its session is over.
_RENEW_AFTER = 0.85
_NONCE_BYTES = 24
_UNSUPPORTED_VERSION = 35


@dataclass(slots=True, eq=False)
class _Pending:
    correlation_id: int
    frame: asyncio.Future[memoryview]


class Connection(asyncio.BufferedProtocol):
    """A connection that is open and logged in; see ``open_connection``."""

    def __init__(self, address: Address, config: SourceConfig) -> None:
        self._address = address
        self._config = config
        self._transport: asyncio.Transport | None = None
        self._pending: deque[_Pending] = deque()
        self._correlation_id = 0
        self._versions: dict[int, tuple[int, int]] = {}
        self._scratch = bytearray(_SCRATCH_BYTES)
        self._filled: int = 0
        # A response that is larger than the scratch, and how much of it has come.
        self._frame: bytearray | None = None
        self._frame_filled: int = 0
        self._failure: SourceError | None = None
        self._lost = asyncio.Event()
        self._quiet_until_s = 0.0
        self._renew_at_s: float | None = None

    @property
    def is_usable(self) -> bool:
        """Whether it is open, and its session does not end soon."""
        if self._transport is None or self._failure is not None:
            return False
        return self._renew_at_s is None or asyncio.get_running_loop().time() < self._renew_at_s

    def version_of(self, api: Api, version_max: int | None = None) -> int:
        """Return the highest version of an API that both sides know, up to ``version_max``.

        Raises ``SourceLacks``.
        """
        theirs = self._versions.get(api.key)
        first, last = api.versions
        if theirs is not None:
            first, last = max(first, theirs[0]), min(last, theirs[1])
            if version_max is not None:
                last = min(last, version_max)
            if first <= last:
                return last
        served = "does not serve it" if theirs is None else f"serves versions {theirs[0]} to {theirs[1]}"
        raise SourceLacks(
            f"the mirror needs {api.name} in versions {api.versions[0]} to {api.versions[1]}, and {self._address} {served}"
        )

    async def call(
        self, api: Api, request: object, *, version_max: int | None = None, wait_s: float = 0.0
    ) -> Any:
        """Send a request in the highest common version; return the response.

        ``wait_s``: how long the broker may hold it back.

        Raises:
            SourceLacks: there is no common version; nothing was sent.
            SourceUnavailable, SourceMalformed: the connection is closed.
        """
        return await self._call(api, request, self.version_of(api, version_max), wait_s=wait_s)

    async def _call(self, api: Api, request: object, api_version: int, *, wait_s: float = 0.0) -> Any:
        frame = await self._exchange(api, request, api_version, wait_s)
        flexible = api.is_flexible(api_version)
        try:
            position = SIZE.size
            if flexible and not api.has_plain_response_header:
                position = schema.skip_tagged_fields(frame, position)
            response, _ = schema.read_message(api.response, api_version, flexible, frame, position)
        except (schema.MalformedMessage, IndexError, ValueError, OverflowError) as error:
            raise self._end(
                SourceMalformed(f"{self._address} sent a response to {api.name} that does not parse: {error}")
            ) from error
        throttle_ms = getattr(response, "throttle_time_ms", 0)
        if throttle_ms > 0:
            self._quiet_until_s = asyncio.get_running_loop().time() + min(throttle_ms / 1000, _THROTTLE_MAX_S)
        return response

    async def _exchange(self, api: Api, request: object, api_version: int, wait_s: float) -> memoryview:
        loop = asyncio.get_running_loop()
        if (quiet_s := self._quiet_until_s - loop.time()) > 0:
            await asyncio.sleep(quiet_s)
        if self._transport is None or self._failure is not None or len(self._pending) >= _PENDING_MAX:
            raise self._failure or SourceUnavailable(f"the connection to {self._address} is closed")
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        flexible = api.is_flexible(api_version)
        out = request_head(api.key, api_version, self._config.client_id, flexible=flexible)
        SIZE.pack_into(out, 4, self._correlation_id)
        schema.writer(api.request, api_version, flexible)(request, out)
        pending = _Pending(self._correlation_id, loop.create_future())
        self._pending.append(pending)
        self._transport.writelines([SIZE.pack(len(out)), out])
        try:
            async with asyncio.timeout(self._config.request_timeout_s + wait_s):
                return await pending.frame
        except TimeoutError:
            raise self._end(
                SourceUnavailable(
                    f"{self._address} did not answer {api.name} within {self._config.request_timeout_s + wait_s:g} s"
                )
            ) from None
        except asyncio.CancelledError:
            # Its response would be taken for that of the next request.
            self.abort()
            raise

    def abort(self) -> None:
        self._end(SourceUnavailable(f"the connection to {self._address} is closed"))

    async def wait_closed(self) -> None:
        if self._transport is not None:
            await self._lost.wait()

    def _end(self, error: SourceError) -> SourceError:
        if self._failure is None:
            self._failure = error
        if self._transport is not None:
            self._transport.abort()
        self._fail_pending(self._failure)
        return error

    def _fail_pending(self, error: SourceError) -> None:
        while self._pending:
            frame = self._pending.popleft().frame
            if not frame.done():
                frame.set_exception(type(error)(*error.args))

    # ── beginning ──

    async def agree(self) -> None:
        """Ask for the versions that the broker serves. Raises ``SourceError``."""
        request = ApiVersionsRequest(
            client_software_name="stele-mirror", client_software_version=_software_version()
        )
        frame = await self._exchange(API_VERSIONS_API, request, 3, 0.0)
        # A broker that does not know the version answers with an error in version 0 (KIP-511).
        if int.from_bytes(frame[4:6], "big", signed=True) == _UNSUPPORTED_VERSION:
            response = await self._call(API_VERSIONS_API, ApiVersionsRequest(), 0)
        else:
            try:
                response, _ = schema.read_message(API_VERSIONS_API.response, 3, True, frame, SIZE.size)
            except (schema.MalformedMessage, IndexError, ValueError, OverflowError) as error:
                raise self._end(
                    SourceMalformed(
                        f"{self._address} sent ApiVersions that do not parse: {error}; is it Kafka?"
                    )
                ) from error
        if response.error_code:
            raise SourceUnavailable(
                f"{self._address} answers ApiVersions with {error_name(response.error_code)}"
            )
        self._versions = {one.api_key: (one.min_version, one.max_version) for one in response.api_keys}

    async def log_in(self) -> None:
        """Log in, if the properties say so. Raises ``SourceError``."""
        login = self._config.login
        if login is None:
            return
        loop = asyncio.get_running_loop()
        begun_s, lifetime_ms = loop.time(), 0
        answer = await self.call(SASL_HANDSHAKE_API, SaslHandshakeRequest(mechanism=login.mechanism))
        if answer.error_code:
            offered = ", ".join(answer.mechanisms)[:200]
            raise SourceRefused(
                f"{self._address} does not offer {login.mechanism}, but {offered or 'no mechanism'}"
            )
        steps = exchange(login, nonce=secrets.token_urlsafe(_NONCE_BYTES))
        message = next(steps)
        while True:
            answer = await self.call(SASL_AUTHENTICATE_API, SaslAuthenticateRequest(auth_bytes=message))
            if answer.error_code:
                raise SourceRefused(
                    f"{self._address} refused the login: {(answer.error_message or error_name(answer.error_code))[:300]}"
                )
            lifetime_ms = answer.session_lifetime_ms
            # The derivation of a key takes a while.
            following = await asyncio.to_thread(_next_of, steps.send, bytes(answer.auth_bytes))
            if following is None:
                break
            message = following
        if lifetime_ms > 0:
            self._renew_at_s = begun_s + lifetime_ms / 1000 * _RENEW_AFTER

    # ── asyncio.BufferedProtocol ──

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Those of uvloop are no subclasses.
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._frame is not None:
            return memoryview(self._frame)[self._frame_filled :]
        return memoryview(self._scratch)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._frame is not None:
            self._frame_filled += nbytes
            if self._frame_filled == len(self._frame):
                frame, self._frame = self._frame, None
                self._deliver(frame)
            return
        self._filled += nbytes
        self._split()

    def _split(self) -> None:
        """Take the responses out of the scratch; what is left begins at 0."""
        position = 0
        while self._filled - position >= SIZE.size:
            size = int.from_bytes(self._scratch[position : position + SIZE.size], "big", signed=True)
            if not SIZE.size <= size <= RESPONSE_BYTES_MAX or not self._pending:
                what = f"a response of {size} bytes" if self._pending else "bytes that nobody asked for"
                self._end(
                    SourceMalformed(f"{self._address} sent {what}; is it a listener of Kafka's protocol?")
                )
                self._filled = 0
                return
            begin = position + SIZE.size
            come = min(self._filled - begin, size)
            if come < size <= len(self._scratch) - SIZE.size:
                break
            frame = bytearray(size)
            frame[:come] = memoryview(self._scratch)[begin : begin + come]
            position = begin + come
            if come < size:
                self._frame, self._frame_filled = frame, come
                break
            self._deliver(frame)
        left = self._filled - position
        self._scratch[:left] = self._scratch[position : self._filled]
        self._filled = left

    def _deliver(self, frame: bytearray) -> None:
        pending = self._pending.popleft()
        (correlation_id,) = SIZE.unpack_from(frame)
        if correlation_id != pending.correlation_id:
            error = SourceMalformed(f"{self._address} sent the response to another request")
            if not pending.frame.done():
                pending.frame.set_exception(error)
            self._end(error)
        elif not pending.frame.done():
            pending.frame.set_result(memoryview(frame))

    def eof_received(self) -> None:
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._failure is None:
            if isinstance(exc, ssl.SSLError):
                self._failure = SourceRefused(f"{self._address}: {refusal(exc)}")
            else:
                why = f": {exc}" if exc is not None and str(exc) else " by the broker"
                self._failure = SourceUnavailable(f"the connection to {self._address} was closed{why}")
        self._fail_pending(self._failure)
        self._lost.set()


async def open_connection(address: Address, config: SourceConfig) -> Connection:
    """Connect, agree on versions, and log in.

    Raises:
        SourceError: it failed; the connection is closed.
        MirrorError: a file that the properties name cannot be used.
    """
    context = None if config.tls is None else await asyncio.to_thread(context_of, config.tls)
    connection = Connection(address, config)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(config.connect_timeout_s):
            await loop.create_connection(
                lambda: connection,
                address.host,
                address.port,
                ssl=context,
                server_hostname=address.host if context else None,
            )
    except TimeoutError:
        connection.abort()
        raise SourceUnavailable(
            f"{address} does not accept a connection within {config.connect_timeout_s:g} s"
        ) from None
    except ssl.SSLError as error:
        raise SourceRefused(f"{address}: {refusal(error)}") from error
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise SourceUnavailable(f"{address} cannot be reached: {why}") from error
    try:
        await connection.agree()
        await connection.log_in()
    except BaseException:
        connection.abort()
        raise
    return connection


def _next_of(send: Callable[[bytes], bytes], answer: bytes) -> bytes | None:
    """Return the next message; None at the end, because a StopIteration cannot pass a future."""
    try:
        return send(answer)
    except StopIteration:
        return None


def _software_version() -> str:
    try:
        return version("stele-broker").replace("+", "-")
    except PackageNotFoundError:
        return "0"
