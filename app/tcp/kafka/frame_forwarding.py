"""The interface by which frames travel to the coordinator of a share group.

The listener does not know how a frame travels: a ``FrameForwarding`` is given to it.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol

from ...cluster.membership import Member
from ...security.forwarding import ForwardedClient


class FrameForwarding(Protocol):
    """Forwards frames about a group to the broker that coordinates it."""

    def target(self, group: str) -> Member | None:
        """Return the other broker that coordinates a group.

        None if this one does, or none is known to.
        """
        ...

    async def moved(self, timeout_ms: int) -> None:
        """Return when a coordinator is known to be another, or after ``timeout_ms``."""
        ...

    def send(
        self,
        group: str,
        member: Member,
        frame: bytes,
        client: ForwardedClient,
        *,
        connection: int,
        bytes_max: int,
    ) -> Coroutine[Any, Any, bytes]:
        """Return the response to ``frame``, without its header.

        ``connection`` is the number of the client's connection, ``bytes_max`` the largest response.

        Raises ``NotCoordinator``.
        """
        ...

    async def end(self, member: Member, connection: int) -> None:
        """Tell a broker that a connection has ended.

        Frames of it were forwarded to that broker. If it cannot be reached, the locks of the records end it.
        """
        ...
