"""The login of a binary connection: AUTHENTICATE, and what may begin (ADR-0033).

::

    not logged in      AUTHENTICATE, on a listener that requires logins
    logged in          everything; AUTHENTICATE logs in again
    login failed       AUTHENTICATE, also on a listener where logins are optional
    session expired    AUTHENTICATE

An exchange that fails does not end the connection, so that a client can try another
mechanism or password. Failures and messages without a login are few, though.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stele.wire import messages as m
from stele.wire.error_codes import ErrorCode

from ...security.audit import Peer
from ...security.authenticator import Authenticator
from ...security.principal import Login, Principal
from ...security.sasl import MECHANISMS, Challenge, Exchange, Failed, Mechanism

# Frames of clients that have not logged in; the largest are tokens of issuers.
LOGIN_FRAME_BYTES_MAX = 64 * 1024
# Logins take two messages at most, and clients know a handful of mechanisms.
LOGIN_FRAMES_MAX = 16
LOGIN_FAILURES_MAX = 3

LOGIN_REQUIRED = (
    "this listener requires a login; log in with AUTHENTICATE, as the client library does with stele://USER@HOST and "
    "STELE_PASSWORD, or with STELE_API_KEY; or connect over TLS with a client certificate"
)
NO_LOGINS = "this listener has no logins; connect without a user and without an API key"
_NO_LOGIN = "the login of this connection has failed; log in with AUTHENTICATE before other requests"
_EXPIRED = "the session has expired, and the client did not log in again in time; connect again"
_FAILED = "authentication failed: the user and password, the key or the token is not valid"
_TOO_MANY = "this connection has tried to log in too often; connect again"
_OTHER_PRINCIPAL = (
    "authentication failed: a connection keeps its principal; connect again to become another one"
)


@dataclass(frozen=True, slots=True)
class Answer:
    """The response to an AUTHENTICATE, and whether the connection ends with it."""

    frame: bytes
    is_last: bool = False


class BinaryLogin:
    """Times are of a monotonic clock, in ms."""

    __slots__ = (
        "_authenticator",
        "_exchange",
        "_expires_ms",
        "_failures",
        "_frames",
        "_is_required",
        "_session_ms_max",
        "login",
        "principal",
    )

    def __init__(
        self, authenticator: Authenticator, *, principal: Principal, is_required: bool, session_ms_max: int
    ) -> None:
        self._authenticator = authenticator
        # By the certificate of the client, until it logs in.
        self.principal = principal
        self.login: Login | None = None
        self._is_required = is_required
        self._session_ms_max = session_ms_max
        self._exchange: Exchange | None = None
        self._expires_ms: int | None = None
        self._frames = self._failures = 0

    @property
    def must_login(self) -> bool:
        return self._is_required and self.principal.is_anonymous

    def refusal(self, now_ms: Callable[[], int]) -> str | None:
        """Return why a request other than AUTHENTICATE ends the connection, None if it may begin."""
        if self.must_login:
            return LOGIN_REQUIRED
        if self._failures:
            # Where logins are optional, too: the client does not expect to be served as anybody else.
            return _NO_LOGIN
        if self._expires_ms is not None and now_ms() >= self._expires_ms:
            return _EXPIRED
        return None

    async def authenticate(
        self, request: m.AuthenticateRequest, peer: Peer, now_ms: Callable[[], int]
    ) -> Answer:
        """Pass a message of the client to its exchange; the first one begins it."""
        self._frames += 1
        if self.must_login and self._frames > LOGIN_FRAMES_MAX:
            return _refuse(ErrorCode.SASL_AUTHENTICATION_FAILED, _TOO_MANY, is_last=True)
        exchange = self._exchange
        if exchange is None:
            mechanism = self._mechanism(request.mechanism)
            if mechanism is None:
                offered = ", ".join(self._authenticator.mechanisms)
                return _refuse(
                    ErrorCode.UNSUPPORTED_SASL_MECHANISM,
                    f"mechanism {request.mechanism[:40]!r} is not enabled; this broker has {offered}",
                )
            exchange = self._exchange = self._authenticator.start(mechanism)
        elif request.mechanism != exchange.mechanism:
            self._exchange = None
            return _refuse(
                ErrorCode.ILLEGAL_SASL_STATE,
                f"the exchange began with mechanism {exchange.mechanism}; begin again",
            )
        outcome = await self._authenticator.step(exchange, request.data, peer)
        if isinstance(outcome, Challenge):
            return Answer(m.AuthenticateResponse(is_done=False, data=outcome.data).encode())
        self._exchange = None
        if isinstance(outcome, Failed):
            self._failures += 1
            return _refuse(
                ErrorCode.SASL_AUTHENTICATION_FAILED, _FAILED, is_last=self._failures >= LOGIN_FAILURES_MAX
            )
        return self._logged_in(outcome.login, outcome.data, now_ms())

    def _mechanism(self, name: str) -> Mechanism | None:
        return next(
            (one for one in MECHANISMS if one == name and one in self._authenticator.mechanisms), None
        )

    def _logged_in(self, login: Login, data: bytes, now_ms: int) -> Answer:
        if self.login is not None and login.principal != self.principal:
            return _refuse(ErrorCode.SASL_AUTHENTICATION_FAILED, _OTHER_PRINCIPAL, is_last=True)
        lifetime_ms = login.lifetime_ms(self._authenticator.now_ms(), session_ms_max=self._session_ms_max)
        if lifetime_ms is not None and lifetime_ms <= 0:
            return _refuse(ErrorCode.SASL_AUTHENTICATION_FAILED, _FAILED, is_last=True)
        self.login = login
        self.principal = login.principal
        self._failures = 0
        self._expires_ms = None if lifetime_ms is None else now_ms + lifetime_ms
        return Answer(m.AuthenticateResponse(is_done=True, lifetime_ms=lifetime_ms or 0, data=data).encode())


def _refuse(code: ErrorCode, message: str, *, is_last: bool = False) -> Answer:
    response = m.ErrorResponse(response_type=m.MessageType.AUTHENTICATE_RESPONSE, code=code, message=message)
    return Answer(response.encode(), is_last)
