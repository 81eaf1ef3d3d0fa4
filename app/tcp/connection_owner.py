"""The interface of a connection to its listener: limits, admission, and a watch over its deadlines."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Protocol, TypeVar

from ..broker.reading.unread_responses import UnreadResponses
from ..network.pending_bytes import PendingBytes
from ..turns import Turns
from .deadlines import Deadlines
from .flow_control import FlowLimits

OwnedConnection = TypeVar("OwnedConnection", contravariant=True)


class ConnectionLimits(FlowLimits, Protocol):
    """The settings a connection obeys; see ``settings`` for the reasons."""

    @property
    def frame_timeout_ms(self) -> int: ...
    @property
    def idle_timeout_ms(self) -> int: ...


class ConnectionRegistry(Protocol[OwnedConnection]):
    """The listener of a connection: admits it, counts it, and watches its deadlines."""

    @property
    def deadlines(self) -> Deadlines: ...

    @property
    def pending(self) -> PendingBytes:
        """Count of the bytes of incomplete requests of all connections."""
        ...

    @property
    def unread(self) -> UnreadResponses:
        """The responses that connections hold, over all listeners."""
        ...

    @property
    def turns(self) -> Turns:
        """Turns of the loop for connections whose requests are much work."""
        ...

    is_crowded: bool
    """Whether there are more connections than may begin requests in one turn of the loop: each asks ``has_turn``."""

    def has_turn(self, later: Callable[[], object], client: Hashable) -> bool:
        """Count a connection that was sent requests; False if it has to wait for a turn, in which ``later`` is called."""
        ...

    def opened(self, connection: OwnedConnection) -> str | None:
        """Return None to admit the connection, otherwise the reason to refuse it."""
        ...

    def closed(self, connection: OwnedConnection) -> None: ...
