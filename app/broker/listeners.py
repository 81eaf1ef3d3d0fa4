"""Where a listener is, and what it reports: its connections and its traffic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

# Texts that a client sends about itself are shown to users; longer ones are cut.
CLIENT_TEXT_CHARACTERS_MAX = 200


class Endpoint(NamedTuple):
    """A host and a port that clients can reach."""

    host: str
    port: int

    @property
    def joined(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Totals since the broker started."""

    connections: int
    connections_opened: int
    connections_refused: int
    bytes_in: int
    bytes_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionView:
    """One open connection; texts come from the client, and are empty if it sent none."""

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
