"""The context of handlers of the binary protocol, and their results."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, Protocol

from stele.wire import messages as m

from ....broker.broker import Broker
from ....cluster.membership import Member
from ....groups.services import GroupServices
from ....security.authorizer import Access
from ....security.forwarding import ForwardedClient
from ....security.policy import ListenerSecurity
from ....transactions.interface import TransactionService
from ....work_budget import in_turns
from ...deferred_response import DeferredResponse
from ...response_queue import Buffers


class GroupForwarding(Protocol):
    """Forwards frames about a group to the broker that coordinates it."""

    def target(self, group: str) -> Member | None:
        """Return the other broker that coordinates a group, None if this one does, or none is known to."""
        ...

    def send(
        self, group: str, member: Member, frame_type: int, body: bytes, client: ForwardedClient
    ) -> Coroutine[Any, Any, Buffers]:
        """Return the frame of the response. Raises ``NotCoordinator``."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BinaryListener:
    """Shared by all connections: the broker, groups, transactions, and the listener's address.

    With access rules, each connection has a copy with the ``access`` of its client.
    """

    broker: Broker
    groups: GroupServices
    transactions: TransactionService
    host: str
    port: int
    security: ListenerSecurity = field(default_factory=lambda: ListenerSecurity(listener="binary"))
    # None: access rules are not checked.
    access: Access | None = None
    # None: this broker has the groups, or refuses requests for them.
    forwarding: GroupForwarding | None = None


# With fewer elements, a response is encoded in one turn of the loop.
_ENCODED_AT_ONCE = 256


async def encoded(response: m.Response, elements: int) -> Buffers:
    """Return the frame of a response with that many elements, in parts."""
    if elements <= _ENCODED_AT_ONCE:
        return response.encode_parts()
    return await in_turns(response.encode_in_steps())


# A response frame, or one that comes later. A handler and its deferred response raise ``SteleError``;
# the connection makes error frames of them.
Answer = Buffers | Coroutine[Any, Any, Buffers] | DeferredResponse[Buffers]
