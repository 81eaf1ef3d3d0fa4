"""Log a connection of the binary protocol in: AUTHENTICATE, without I/O (ADR-0033).

::

    login = Login(credentials, [endpoint])
    attempt = login.begin(endpoint)
    frame = attempt.first()
    while frame is not None:
        frame = attempt.receive(send_and_receive(frame))
    attempt.lifetime_ms

``Login`` is of a transport and remembers which mechanism worked and the salted password,
so that further connections cost no key derivation. A password goes through SCRAM; PLAIN,
which reveals it, is tried only over TLS and on loopback.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from ..config import Endpoint
from ..credentials import Credentials, TokenSource
from ..errors import (
    AuthenticationError,
    ProtocolError,
    SteleClientError,
    UnsupportedOperationError,
    connection_error,
    error_for,
)
from ..wire.error_codes import ErrorCode
from ..wire.messages import (
    AuthenticateRequest,
    AuthenticateResponse,
    ErrorResponse,
    MessageError,
    MessageType,
    decode_response,
)
from .scram import ScramClient, ScramFailed, salt

Mechanism = Literal["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "OAUTHBEARER"]

# A connection logs in again when this part of its session is over.
RENEW_AFTER = 0.85
# The broker delays the answer to logins after failures, by several seconds at most.
LOGIN_TIMEOUT_S = 15.0
_NONCE_BYTES = 24


@dataclass(slots=True, eq=False)
class Login:
    """Logs the connections of one transport in; ``endpoints`` are the allowed ones."""

    credentials: Credentials
    endpoints: Sequence[Endpoint]
    _mechanism: int = 0
    _salted: tuple[tuple[str, bytes, int], bytes] | None = field(default=None, repr=False)

    @property
    def mechanisms(self) -> Sequence[Mechanism]:
        """The mechanisms to try, in this order."""
        if self.credentials.token is not None:
            return ("OAUTHBEARER",)
        if self.credentials.api_key:
            return ("PLAIN", "OAUTHBEARER")
        scram: tuple[Mechanism, ...] = ("SCRAM-SHA-512", "SCRAM-SHA-256")
        return (*scram, "PLAIN") if self._may_reveal() else scram

    def begin(self, endpoint: Endpoint) -> Attempt:
        """Begin to log in a connection to ``endpoint``."""
        return Attempt(self, endpoint)

    def first(self, index: int) -> tuple[Mechanism, bytes, ScramClient | None]:
        """Return the mechanism with this index, and the first message of its exchange."""
        credentials, mechanism = self.credentials, self.mechanisms[index]
        match mechanism:
            case "PLAIN":
                user, password = credentials.user, credentials.password
                if credentials.api_key:
                    user, password = credentials.api_key_id, credentials.api_key
                return mechanism, f"\0{user}\0{password}".encode(), None
            case "OAUTHBEARER":
                token = credentials.api_key if credentials.token is None else fresh_token(credentials.token)
                return mechanism, f"n,,\1auth=Bearer {token}\1\1".encode(), None
            case _:
                scram = ScramClient(
                    mechanism,
                    credentials.user,
                    credentials.password,
                    secrets.token_urlsafe(_NONCE_BYTES),
                    self._salt,
                )
                return mechanism, scram.first(), scram

    @property
    def start_index(self) -> int:
        return self._mechanism

    def worked(self, index: int) -> None:
        self._mechanism = index

    def forget(self) -> None:
        """Begin with the first mechanism again: the settings of the broker may have changed."""
        self._mechanism = 0

    def _salt(self, hash_name: str, password: str, salted_with: bytes, iterations: int) -> bytes:
        entry = hash_name, salted_with, iterations
        if self._salted is None or self._salted[0] != entry:
            self._salted = entry, salt(hash_name, password, salted_with, iterations)
        return self._salted[1]

    def _may_reveal(self) -> bool:
        return all(map(_hears_nobody_else, self.endpoints))


def _hears_nobody_else(endpoint: Endpoint) -> bool:
    """Return whether a password may be sent as it is."""
    if endpoint.tls is not None or endpoint.host == "localhost":
        return True
    try:
        return ipaddress.ip_address(endpoint.host).is_loopback
    except ValueError:
        return False


class Attempt:
    """One login of one connection.

    ``receive`` may take some 10 ms the first time, for a password.
    """

    def __init__(self, login: Login, endpoint: Endpoint) -> None:
        self._login = login
        self._endpoint = endpoint
        self._index = login.start_index
        self._mechanism: Mechanism = "PLAIN"
        self._scram: ScramClient | None = None
        self._is_proved = False
        # Set when the connection is logged in; 0 without a limit.
        self.lifetime_ms: int = 0

    def first(self) -> bytes:
        """Return the first frame. May wait for a token."""
        self._mechanism, data, self._scram = self._login.first(self._index)
        self._is_proved = False
        return self._frame(data)

    def receive(self, frame_type: int, body: bytes) -> bytes | None:
        """Return the next frame to send; None when the connection is logged in.

        Raises:
            AuthenticationError: the login failed; the connection must be closed.
            SteleClientError: another error of the broker.
        """
        try:
            response = decode_response(frame_type, body)
        except MessageError as error:
            raise ProtocolError(f"the broker's response does not parse: {error}") from error
        if isinstance(response, ErrorResponse):
            return self._after_error(response)
        if not isinstance(response, AuthenticateResponse):
            raise ProtocolError(f"the broker sent {type(response).__name__} instead of AuthenticateResponse")
        try:
            if response.is_done:
                self._end(response)
                return None
            return self._frame(self._next(response.data))
        except ScramFailed as error:
            raise AuthenticationError(f"the login to {self._where()} was broken off: {error}") from error

    def _next(self, challenge: bytes) -> bytes:
        if self._scram is not None and not self._is_proved:
            self._is_proved = True
            return self._scram.final(challenge)
        if self._mechanism == "OAUTHBEARER":
            # The token was refused; this message lets the broker say so.
            return b"\1"
        raise AuthenticationError(f"{self._where()} asked for more than {self._mechanism} has")

    def _end(self, response: AuthenticateResponse) -> None:
        if self._scram is not None:
            # Success without the broker's proof would let anybody be the broker.
            self._scram.verify(response.data)
        self._login.worked(self._index)
        self.lifetime_ms = response.lifetime_ms

    def _after_error(self, response: ErrorResponse) -> bytes:
        if response.response_type == MessageType.ERROR:
            if "is not a request" in response.message:
                raise UnsupportedOperationError(
                    f"{self._where()} is older than logins over the binary protocol; upgrade it, or use http://"
                )
            raise connection_error(response.message)
        if response.code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            if self._index + 1 < len(self._login.mechanisms):
                self._index += 1
                return self.first()
            self._login.forget()
            raise AuthenticationError(
                f"{self._where()} has none of the mechanisms {', '.join(self._login.mechanisms)}: {response.message}",
                code=response.code,
            )
        raise login_error(response)

    def _frame(self, data: bytes) -> bytes:
        return AuthenticateRequest(mechanism=self._mechanism, data=data).encode()

    def _where(self) -> str:
        return f"the broker at {self._endpoint.host}:{self._endpoint.port}"


def login_error(response: ErrorResponse) -> SteleClientError:
    """Return the error of a login that the broker refused; another attempt would fail as well."""
    if response.code == ErrorCode.SECURITY_DISABLED:
        return AuthenticationError(response.message, code=response.code)
    return error_for(response.code, response.message)


def fresh_token(source: TokenSource) -> str:
    """Call ``source``.

    Raises AuthenticationError if it fails, or returns what is no token.
    """
    try:
        token = source()
    except Exception as error:  # the caller's code, called from a task of the client
        raise AuthenticationError(f"the token callback failed: {type(error).__name__}") from error
    if not token or not token.isascii() or not token.isprintable():
        raise AuthenticationError("the token callback returned no token")
    return token
