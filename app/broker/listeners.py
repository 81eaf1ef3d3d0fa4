"""The address of a listener, and its connections and traffic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
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
    # TLS handshakes in progress, completed, and failed by reason.
    handshakes_pending: int = 0
    handshakes: int = 0
    handshakes_failed: Mapping[str, int] = field(default_factory=dict[str, int])
    accept_failures: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsStatus:
    """The certificate of a listener, and how its reloads went."""

    certificate_expires_s: float
    reloads: int
    reload_failures: int
    # True if the files could not be used when they were read last.
    has_reload_failed: bool


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
    # Empty without TLS.
    tls_version: str = ""
    principal: str = "User:ANONYMOUS"


class ListenerView(Protocol):
    @property
    def name(self) -> str: ...
    def traffic(self) -> Traffic: ...
    def connection_views(self) -> Iterator[ConnectionView]:
        """Return the connections that are open now; the caller may pause in between."""
        ...

    def tls_status(self) -> TlsStatus | None:
        """Return None without TLS."""
        ...
