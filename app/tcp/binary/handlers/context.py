"""What every handler of the binary protocol knows, and what it may return."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from ....broker.broker import Broker
from ....groups.services import Groups
from ...deferred_response import DeferredResponse
from ...response_queue import Buffers


@dataclass(frozen=True, slots=True, kw_only=True)
class BinaryListener:
    """What all connections share: the broker, the groups, and where clients reach this listener."""

    broker: Broker
    groups: Groups
    host: str
    port: int


# A response frame, or one that comes later. A handler and its deferred response raise ``SteleError``;
# the connection makes error frames of them.
Answer = Buffers | Coroutine[Any, Any, Buffers] | DeferredResponse[Buffers]
