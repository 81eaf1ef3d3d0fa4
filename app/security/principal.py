"""The name under which a peer acts, and the login that gave it the name."""

from __future__ import annotations

from dataclasses import dataclass

_USER = "User"
# The kind of the broker's own processes; no client can get it.
BROKER = "Broker"


@dataclass(frozen=True, slots=True)
class Principal:
    """Kafka's ``User:NAME``; names are compared exactly, case included."""

    name: str
    kind: str = _USER

    @classmethod
    def parse(cls, text: str) -> Principal:
        """Parse ``KIND:NAME``. Raises ValueError."""
        kind, colon, name = text.partition(":")
        if not (kind and colon and name):
            raise ValueError(f"{text!r} is not a principal; write it as User:NAME")
        return cls(name, kind)

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @property
    def is_anonymous(self) -> bool:
        return self == ANONYMOUS


ANONYMOUS = Principal("ANONYMOUS")


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """A successful authentication.

    ``credential`` names what was presented (``user:alice``, ``key:…``), never its
    secret; it is empty for what the broker cannot revoke. ``expires_at_ms`` is None if
    the login lasts as long as its connection.
    """

    principal: Principal
    mechanism: str
    credential: str = ""
    expires_at_ms: int | None = None

    def lifetime_ms(self, now_ms: int, *, session_ms_max: int) -> int | None:
        """Return how long a session of this login may last: None without a limit, 0 or less if it is over.

        ``session_ms_max`` is the limit of the broker, 0 for none.
        """
        lifetimes = [session_ms_max] if session_ms_max else []
        if self.expires_at_ms is not None:
            lifetimes.append(self.expires_at_ms - now_ms)
        return min(lifetimes, default=None)
