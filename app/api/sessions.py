"""Sessions of the console: an opaque random id in a cookie, everything else in memory (RFC 6265).

The cookie is HttpOnly and SameSite=Strict, and under TLS Secure with the prefix
``__Host-``. Its name has the port, because browsers send cookies to every port of a host.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from dataclasses import dataclass

from ..clock import Clock
from ..security.principal import Login

IDLE_MS = 30 * 60 * 1000
ABSOLUTE_MS = 12 * 60 * 60 * 1000
SESSIONS_MAX = 10_000
_ID_BYTES = 32


@dataclass(slots=True)
class _Session:
    login: Login
    begun_ms: int
    used_ms: int


class Sessions:
    """Ids are kept as hashes.

    So none can be read from a memory dump, or by timing a lookup.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sessions: OrderedDict[bytes, _Session] = OrderedDict()

    def begin(self, login: Login) -> str:
        """Return the id of a new session; the least recently used session makes room."""
        session_id = secrets.token_urlsafe(_ID_BYTES)
        now_ms = self._clock.monotonic_ms()
        self._sessions[_key(session_id)] = _Session(login, now_ms, now_ms)
        if len(self._sessions) > SESSIONS_MAX:
            self._sessions.popitem(last=False)
        return session_id

    def find(self, session_id: str) -> Login | None:
        """Return the login of a session, None if there is none, or if the session or its login has expired."""
        key = _key(session_id)
        session = self._sessions.get(key)
        if session is None:
            return None
        now_ms = self._clock.monotonic_ms()
        expires_at_ms = session.login.expires_at_ms
        if (
            now_ms - session.used_ms >= IDLE_MS
            or now_ms - session.begun_ms >= ABSOLUTE_MS
            or (expires_at_ms is not None and self._clock.now_ms() >= expires_at_ms)
        ):
            del self._sessions[key]
            return None
        session.used_ms = now_ms
        self._sessions.move_to_end(key)
        return session.login

    def end(self, session_id: str) -> None:
        self._sessions.pop(_key(session_id), None)

    def revoke(self, credential: str) -> None:
        """End the sessions that began with ``credential``."""
        for key in [k for k, session in self._sessions.items() if session.login.credential == credential]:
            del self._sessions[key]


def cookie_name(scheme: str, port: int) -> str:
    return f"{'__Host-' if scheme == 'https' else ''}stele-session-{port}"


def cookie(name: str, session_id: str, scheme: str) -> str:
    """Return ``Set-Cookie``; an empty id deletes the cookie."""
    secure = "; Secure" if scheme == "https" else ""
    ended = "; Max-Age=0" if not session_id else ""
    return f"{name}={session_id}; Path=/; HttpOnly; SameSite=Strict{secure}{ended}"


def _key(session_id: str) -> bytes:
    return hashlib.sha256(session_id.encode()).digest()
