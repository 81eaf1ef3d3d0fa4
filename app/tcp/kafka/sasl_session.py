"""SASL on one connection of the Kafka protocol.

When a client logs in, again (KIP-368), and when it may not.

Which requests may begin follows Apache Kafka's SaslServerAuthenticator::

    before the handshake    ApiVersions, SaslHandshake
    after the handshake     SaslAuthenticate, or bare tokens after a handshake of version 0
    logged in               everything but SaslAuthenticate; SaslHandshake logs in again
    session expired         SaslHandshake
"""

from __future__ import annotations

from dataclasses import dataclass

from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.security import SaslAuthenticateResponse, SaslHandshakeResponse

from ...security.audit import Peer
from ...security.authenticator import Authenticator, Outcome
from ...security.principal import Login, Principal
from ...security.sasl import Challenge, Done, Exchange, Failed, Mechanism

API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE = 18, 17, 36

# Requests of clients that have not logged in; the largest are tokens of issuers.
LOGIN_REQUEST_BYTES_MAX = 64 * 1024
# Logins take four requests; clients that ask for versions do so once or twice.
LOGIN_REQUESTS_MAX = 16
# Logins of one connection are at least this far apart.
_AGAIN_AFTER_MS = 1000

_FAILED = "Authentication failed: the user and password, the key or the token is not valid"
_NO_HANDSHAKE = "SaslAuthenticate was sent without a SaslHandshake before it"


@dataclass(frozen=True, slots=True)
class Answer:
    """What to send.

    ``raw`` are the bytes for a client that sends bare tokens, None for no answer.
    """

    response: SaslAuthenticateResponse
    raw: bytes | None
    is_last: bool = False


class SaslSession:
    """The login of one connection. Times are of a monotonic clock, in ms."""

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
        self.is_raw = False
        self._mechanism: Mechanism | None = None
        self._since_ms = 0
        self._expires_ms: int | None = None
        self._requests = 0

    @property
    def must_login(self) -> bool:
        return self._is_required and self.principal.is_anonymous

    def refusal(self, api_key: int, now_ms: int) -> str | None:
        """Return why a request with this key closes the connection, None if it may begin.

        Counts the requests before the login, whose responses would otherwise fill the memory of the broker.
        """
        if self.must_login:
            self._requests += 1
            if self._requests > LOGIN_REQUESTS_MAX:
                return f"it sent more than {LOGIN_REQUESTS_MAX} requests before its login"
        if self._exchange is not None:
            return (
                None if api_key == SASL_AUTHENTICATE else "it sent another request in the middle of its login"
            )
        if api_key == SASL_HANDSHAKE:
            return None
        if self._expires_ms is not None and now_ms >= self._expires_ms:
            return "its session has expired, and it did not log in again"
        if self.must_login and api_key not in (API_VERSIONS, SASL_AUTHENTICATE):
            return "it has not logged in; configure security.protocol=SASL_SSL or SASL_PLAINTEXT"
        return None

    def handshake(self, mechanism: str, version: int, now_ms: int) -> tuple[SaslHandshakeResponse, bool]:
        """Choose the mechanism.

        Returns the response, and whether the connection ends with it.
        """
        offered = self._authenticator.mechanisms

        def answer(code: ErrorCode, *, is_last: bool = False) -> tuple[SaslHandshakeResponse, bool]:
            return SaslHandshakeResponse(error_code=code, mechanisms=offered), is_last

        if self.login is not None:
            if self._expires_ms is None:
                return answer(ErrorCode.ILLEGAL_SASL_STATE)
            if now_ms - self._since_ms < _AGAIN_AFTER_MS:
                return answer(ErrorCode.ILLEGAL_SASL_STATE, is_last=True)
        if mechanism not in offered:
            return answer(ErrorCode.UNSUPPORTED_SASL_MECHANISM, is_last=True)
        if self.login is not None and mechanism != self._mechanism:
            return answer(ErrorCode.SASL_AUTHENTICATION_FAILED, is_last=True)
        self._mechanism = mechanism
        self._exchange = self._authenticator.start(self._mechanism)
        self.is_raw = version == 0
        return answer(ErrorCode.NONE)

    async def authenticate(self, token: bytes, peer: Peer, now_ms: int) -> Answer:
        """Pass a token of the client to its exchange."""
        if self._exchange is None:
            response = _response(ErrorCode.ILLEGAL_SASL_STATE, _NO_HANDSHAKE)
            return Answer(response, None, is_last=self.must_login)
        outcome = await self._authenticator.step(self._exchange, token, peer)
        return self._answer(outcome, now_ms)

    def _answer(self, outcome: Outcome, now_ms: int) -> Answer:
        if isinstance(outcome, Challenge):
            return Answer(_response(ErrorCode.NONE, data=outcome.data), outcome.data)
        self._exchange = None
        self.is_raw = False
        if isinstance(outcome, Failed):
            return _refused()
        if self.login is not None and outcome.login.principal != self.principal:
            # A connection keeps its principal for life.
            return _refused()
        return self._logged_in(outcome, now_ms)

    def _logged_in(self, done: Done, now_ms: int) -> Answer:
        login = done.login
        lifetime_ms = login.lifetime_ms(self._authenticator.now_ms(), session_ms_max=self._session_ms_max)
        if lifetime_ms is not None and lifetime_ms <= 0:
            return _refused()
        self.login = login
        self.principal = login.principal
        self._since_ms = now_ms
        self._expires_ms = None if lifetime_ms is None else now_ms + lifetime_ms
        return Answer(_response(ErrorCode.NONE, data=done.data, lifetime_ms=lifetime_ms or 0), done.data)


def _refused() -> Answer:
    # A client that sends bare tokens gets no answer to a wrong one, as from Apache Kafka.
    return Answer(_response(ErrorCode.SASL_AUTHENTICATION_FAILED, _FAILED), None, is_last=True)


def _response(
    code: ErrorCode, message: str | None = None, *, data: bytes = b"", lifetime_ms: int = 0
) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=code, error_message=message, auth_bytes=data, session_lifetime_ms=lifetime_ms
    )
