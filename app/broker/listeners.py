"""What a listener can say of itself: who is connected, and how much went through it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

# What a client says of itself is shown to people; more of it is cut off.
CLIENT_TEXT_CHARACTERS_MAX = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Totals since the broker began."""

    connections: int
    connections_opened: int
    connections_refused: int
    bytes_in: int
    bytes_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionView:
    """One connection now. The texts are the client's own words, empty where it said nothing."""

    protocol: str
    peer: str
    age_ms: int
    bytes_in: int
    bytes_out: int
    client_id: str = ""
    client_name: str = ""
    client_version: str = ""


class ListenerView(Protocol):
    @property
    def name(self) -> str: ...
    def traffic(self) -> Traffic: ...
    def connection_views(self) -> list[ConnectionView]: ...
