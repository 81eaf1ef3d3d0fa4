"""SASL for a server, without I/O: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER.

An ``Exchange`` is one authentication. Its driver passes in the client's bytes with
``receive`` and does what the returned ``Step`` asks for::

    Challenge            send the bytes, then receive the client's next ones
    CheckPassword        slow: check it in a thread, and pass the login or None to ``checked``
    CheckToken           may wait for keys: the same
    Done                 the client is who ``login`` says; send the bytes
    Failed               it is not; ``reason`` is for the log, not for the client

Only ``Done`` authenticates, and it cannot be made without a login. An exchange that has
ended, and one that is used out of turn, fails.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from .principal import Login, Principal
from .scram import (
    ClientFirst,
    MalformedScram,
    ScramCredential,
    ScramMechanism,
    parse_client_first,
    server_final,
    server_first,
)

Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
MECHANISMS: tuple[Mechanism, ...] = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "OAUTHBEARER")

_NAME_CHARACTERS_MAX = 255
# RFC 7628; "l-" is not, but franz-go and others may send key-value pairs in any order.
_BEARER = re.compile(r"bearer +([A-Za-z0-9._~+/=-]{1,16384})", re.IGNORECASE)
_INVALID_TOKEN = b'{"status":"invalid_token"}'


@dataclass(frozen=True, slots=True)
class Challenge:
    data: bytes


@dataclass(frozen=True, slots=True)
class CheckPassword:
    user: str
    password: str

    def __repr__(self) -> str:
        return f"CheckPassword({self.user!r})"


@dataclass(frozen=True, slots=True)
class CheckToken:
    token: str

    def __repr__(self) -> str:
        return "CheckToken()"


@dataclass(frozen=True, slots=True)
class Done:
    login: Login
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class Failed:
    """``user`` is whom the client claimed to be, empty if it got no further."""

    reason: str
    user: str = ""


Step = Challenge | CheckPassword | CheckToken | Done | Failed


class Exchange(Protocol):
    @property
    def mechanism(self) -> Mechanism: ...
    @property
    def user(self) -> str:
        """The user that the client claims to be, if known yet; for the log and the throttle."""
        ...

    def receive(self, data: bytes) -> Step: ...
    def checked(self, login: Login | None) -> Step: ...


def start(
    mechanism: Mechanism,
    *,
    scram_credential: Callable[[str, ScramMechanism], ScramCredential],
    nonce: str,
) -> Exchange:
    """Begin an exchange.

    ``scram_credential`` returns the credential of a user, and a made-up one for an
    unknown user. ``nonce`` is printable and never used twice.
    """
    match mechanism:
        case "PLAIN":
            return PlainExchange()
        case "OAUTHBEARER":
            return BearerExchange()
        case _:
            return ScramExchange(mechanism, scram_credential, nonce)


_OUT_OF_TURN = Failed("the exchange was used out of turn")


class PlainExchange:
    """``[authzid] NUL user NUL password`` (RFC 4616)."""

    mechanism: Mechanism = "PLAIN"

    def __init__(self) -> None:
        self.user = ""
        self._is_begun = False
        self._is_checking = False

    def receive(self, data: bytes) -> Step:
        if self._is_begun:
            return _OUT_OF_TURN
        self._is_begun = True
        try:
            authzid, user, password = data.decode().split("\0")
        except ValueError:  # not UTF-8, or not three parts
            return Failed("the message of PLAIN is malformed")
        if not user or not password or len(user) > _NAME_CHARACTERS_MAX:
            return Failed("the message of PLAIN has no user or no password")
        self.user = user
        # Otherwise a client would authenticate as one user and act as another (CVE-2017-12610).
        if authzid not in ("", user):
            return Failed("the authorization id differs from the user", user)
        self._is_checking = True
        return CheckPassword(user, password)

    def checked(self, login: Login | None) -> Step:
        if not self._is_checking:
            return _OUT_OF_TURN
        self._is_checking = False
        return Failed("wrong user or password", self.user) if login is None else Done(login)


class ScramExchange:
    """Two messages each way (RFC 5802)."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        credential: Callable[[str, ScramMechanism], ScramCredential],
        nonce: str,
    ) -> None:
        self.mechanism: Mechanism = mechanism
        self.user = ""
        self._scram: ScramMechanism = mechanism
        self._credential_of = credential
        self._nonce = nonce
        self._pending: tuple[ClientFirst, str, ScramCredential] | None = None
        self._is_begun = False

    def receive(self, data: bytes) -> Step:
        try:
            if not self._is_begun:
                self._is_begun = True
                return self._first(data)
            pending, self._pending = self._pending, None
            return _OUT_OF_TURN if pending is None else self._final(data, *pending)
        except MalformedScram as error:
            return Failed(str(error), self.user)

    def checked(self, login: Login | None) -> Step:
        return _OUT_OF_TURN

    def _first(self, data: bytes) -> Step:
        first = parse_client_first(data)
        self.user = first.name
        if first.authzid not in ("", first.name):
            return Failed("the authorization id differs from the user", first.name)
        credential = self._credential_of(first.name, self._scram)
        challenge = server_first(first.nonce + self._nonce, credential)
        self._pending = first, challenge, credential
        return Challenge(challenge.encode())

    def _final(self, data: bytes, first: ClientFirst, challenge: str, credential: ScramCredential) -> Step:
        final = server_final(first, challenge, data, credential)
        # The credential may have been replaced or deleted since the first message.
        if final is None or credential != self._credential_of(first.name, self._scram):
            return Failed("wrong user or password", first.name)
        login = Login(
            principal=Principal(first.name), mechanism=self.mechanism, credential=f"user:{first.name}"
        )
        return Done(login, final)


class BearerExchange:
    """A bearer token (RFC 7628, KIP-255)."""

    mechanism: Mechanism = "OAUTHBEARER"

    def __init__(self) -> None:
        self.user = ""
        self._state: Literal["start", "checking", "refused", "ended"] = "start"

    def receive(self, data: bytes) -> Step:
        if self._state == "refused":
            # The client confirms the error; what it sends for that differs between clients.
            self._state = "ended"
            return Failed("the token is not valid")
        if self._state != "start":
            return _OUT_OF_TURN
        self._state = "ended"
        token = _bearer_token(data)
        if token is None:
            return Failed("the message of OAUTHBEARER is malformed")
        self._state = "checking"
        return CheckToken(token)

    def checked(self, login: Login | None) -> Step:
        if self._state != "checking":
            return _OUT_OF_TURN
        if login is None:
            self._state = "refused"
            return Challenge(_INVALID_TOKEN)
        self._state = "ended"
        return Done(login)


def _bearer_token(data: bytes) -> str | None:
    try:
        header, *pairs = data.decode().split("\1")
    except UnicodeDecodeError:
        return None
    # No channel binding; the authorization id belongs to the token, so none is taken here.
    if not header.startswith("n,"):
        return None
    for pair in pairs:
        name, _, value = pair.partition("=")
        if name == "auth":
            match = _BEARER.fullmatch(value)
            return match[1] if match else None
    return None
