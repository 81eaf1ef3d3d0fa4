"""Check what clients present: passwords, API keys, tokens and SASL exchanges, for all listeners.

What takes long runs in threads, failures are slowed down, and every login is logged.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from ..clock import Clock
from .audit import Peer, log_login
from .credentials import Credentials, key_id_of
from .jwt_tokens import InvalidToken, JwtValidator
from .login_throttle import FREE_FAILURES, LoginThrottle
from .principal import ANONYMOUS, Login, Principal
from .sasl import Challenge, CheckPassword, CheckToken, Done, Exchange, Failed, Mechanism, start
from .scram import ScramCredential, is_password

logger = logging.getLogger(__name__)

# Checking a password takes about 10 ms; more threads would take the processor from the broker.
_THREADS = 2
# Answers to failed logins wait at least this long (KIP-306).
FAILURE_DELAY_MS = 100
# Passwords that were right lately, so that Basic does not cost a PBKDF2 per request.
_CACHED_MAX = 1024
_NONCE_BYTES = 24
_PASSWORD_CHARACTERS_MAX = 1024

# An attempt that is refused unchecked is no failure: clients that try again would never get in.
_REFUSED = "too many failed logins"

Outcome = Challenge | Done | Failed


class _Refused(Exception):
    """The address of an attempt failed too often while the attempt waited."""


class Authenticator:
    """One for all listeners; ``sleep`` takes seconds."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        clock: Clock,
        mechanisms: Sequence[Mechanism],
        tokens: JwtValidator | None = None,
        free_failures: int = FREE_FAILURES,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.credentials = credentials
        self.mechanisms = tuple(mechanisms)
        self._clock = clock
        self._tokens = tokens
        self._sleep = sleep
        self._throttle = LoginThrottle(free_failures)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="stele-login")
        # Attempts wait here, where those of an address that fails meanwhile can still be refused.
        self._hashing = asyncio.Semaphore(_THREADS)
        self._cache_key = secrets.token_bytes(32)
        # The credential is kept beside the password, so a change of it takes effect at once.
        self._cache: OrderedDict[bytes, ScramCredential] = OrderedDict()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def now_ms(self) -> int:
        return self._clock.now_ms()

    # ── SASL ──

    def start(self, mechanism: Mechanism) -> Exchange:
        return start(
            mechanism,
            scram_credential=self.credentials.scram,
            nonce=secrets.token_urlsafe(_NONCE_BYTES),
        )

    async def step(self, exchange: Exchange, data: bytes, peer: Peer) -> Outcome:
        """Pass ``data`` to the exchange; return what to send, who has logged in, or the failure.

        The answer to a failure comes late, and the attempts after it, too.
        """
        outcome = await self._step(exchange, data, peer)
        match outcome:
            case Done(login):
                self.log_allowed(peer, login)
            case Failed(reason):
                await self._failed(peer, exchange.user, exchange.mechanism, reason)
            case Challenge():
                pass
        return outcome

    async def _step(self, exchange: Exchange, data: bytes, peer: Peer) -> Outcome:
        # The second message of SCRAM holds the proof.
        if exchange.user and not await self._may_try(peer, exchange.user):
            return Failed(_REFUSED, exchange.user)
        step = exchange.receive(data)
        if isinstance(step, CheckPassword | CheckToken):
            if isinstance(step, CheckPassword):
                login = self._key_login(step.password, key_id=step.user)
            else:
                login = self._key_login(step.token)
            if login is None:
                if not await self._may_try(peer, exchange.user):
                    return Failed(_REFUSED, exchange.user)
                try:
                    if isinstance(step, CheckPassword):
                        login = await self._password_login(step.user, step.password, peer)
                    else:
                        login = await self._token_login(step.token)
                except _Refused:
                    return Failed(_REFUSED, exchange.user)
            step = exchange.checked(login)
            assert not isinstance(step, CheckPassword | CheckToken)
        return step

    # ── HTTP ──

    async def login_password(self, user: str, password: str, peer: Peer, *, mechanism: str) -> Login | None:
        """Return the login of a user and a password, or None, late, if they are wrong."""
        if (login := self._key_login(password, key_id=user)) is not None:
            return login
        if not await self._may_try(peer, user):
            return await self._failed(peer, user, mechanism, _REFUSED)
        try:
            login = await self._password_login(user, password, peer)
        except _Refused:
            return await self._failed(peer, user, mechanism, _REFUSED)
        if login is None:
            return await self._failed(peer, user, mechanism, "wrong user or password")
        return login

    async def login_token(self, token: str, peer: Peer) -> Login | None:
        """Return the login of an API key or a JWT, or None, late, if it is not valid."""
        if (login := self._key_login(token)) is not None:
            return login
        key_id = key_id_of(token)
        if not await self._may_try(peer, ""):
            return await self._failed(peer, "", "BEARER", _REFUSED)
        login = await self._token_login(token)
        if login is None:
            return await self._failed(peer, "", f"BEARER {key_id}".strip(), "the token is not valid")
        return login

    def log_allowed(self, peer: Peer, login: Login) -> None:
        log_login(peer, principal=str(login.principal), mechanism=login.mechanism, is_allowed=True)

    # ── checks ──

    def _key_login(self, token: str, *, key_id: str | None = None) -> Login | None:
        """Return the login of an API key; None for a wrong one, and for what is none.

        With ``key_id``, the key is a password, for clients that know no tokens: the user is its
        id. Keys cannot be guessed, so failures of others at the same address do not refuse them.
        """
        named = key_id_of(token)
        if not named or key_id not in (None, named):
            return None
        return self.credentials.key_login(token, self._clock.now_ms(), key_id=key_id)

    async def _password_login(self, user: str, password: str, peer: Peer) -> Login | None:
        """Check a password. Raises _Refused."""
        if len(password) > _PASSWORD_CHARACTERS_MAX or key_id_of(password) == user:
            return None
        credential = self.credentials.password_credential(user)
        entry = hmac.digest(self._cache_key, f"{user}\0{password}".encode(), hashlib.sha256)
        cached = self._cache.get(entry)
        if cached != credential:
            async with self._hashing:
                if self._is_refused(peer, user):
                    raise _Refused
                loop = asyncio.get_running_loop()
                if not await loop.run_in_executor(self._threads, is_password, credential, password):
                    return None
            # It may have been replaced or deleted meanwhile.
            if self.credentials.password_credential(user) != credential:
                return None
            self._cache[entry] = credential
            if len(self._cache) > _CACHED_MAX:
                self._cache.popitem(last=False)
        return Login(principal=Principal(user), mechanism="PLAIN", credential=f"user:{user}")

    async def _token_login(self, token: str) -> Login | None:
        if key_id_of(token) or self._tokens is None:
            return None
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._tokens.login, token)
        except InvalidToken as error:
            logger.info("a token was refused: %s", error)
            return None

    # ── failures ──

    async def _may_try(self, peer: Peer, user: str) -> bool:
        delay_ms = self._throttle.delay_ms(peer.host, user, self._clock.monotonic_ms())
        if delay_ms:
            await self._sleep(delay_ms / 1000)
            # Many attempts that wait at once would otherwise all be checked after the same delay.
            return not self._is_refused(peer, user)
        return delay_ms is not None

    def _is_refused(self, peer: Peer, user: str) -> bool:
        return self._throttle.delay_ms(peer.host, user, self._clock.monotonic_ms()) is None

    async def _failed(self, peer: Peer, user: str, mechanism: str, reason: str) -> None:
        if reason != _REFUSED:
            self._throttle.failed(peer.host, user, self._clock.monotonic_ms())
        log_login(
            peer,
            principal=str(Principal(user) if user else ANONYMOUS),
            mechanism=mechanism,
            is_allowed=False,
            reason=reason,
        )
        await self._sleep(FAILURE_DELAY_MS / 1000)
