"""An API that is served: its messages, its handler, its guard, and how a connection runs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass, field, replace
from types import GeneratorType
from typing import Any, cast

from stele.wire import schema
from stele.wire.kafka.api import Api
from stele.wire.kafka.headers import SIZE, response_head, set_size

from ...broker.broker import Broker
from ...work_budget import Steps, at_once, in_turns
from .context import Answer, Context, awaited
from .guards.rights import Guard

_Write = Callable[[Any, bytearray, list[bytes | bytearray]], None]


@dataclass(frozen=True, slots=True)
class Served:
    """One row of the table of APIs. Each handler module exports its own as ``ROWS``.

    ``changes``: the work continues after the client has disconnected. ``is_barrier``:
    whether no later request of the connection may begin before this one has ended.
    ``walks``: the handler visits any number of partitions or groups and pauses among
    them, as does the encoding of its response; it too keeps later requests of its connection waiting, so that a client sees
    its own requests take effect one after the other. ``lists``: the response may list any number of things, so its encoding
    pauses, too, and no later request waits for it. ``reads``: the largest size of the
    response in bytes, for requests that read the log.
    ``finds_topics_itself``: the handler looks for unknown topics of a request in a way
    of its own, or the request names topics that no client creates.
    """

    api: Api
    handle: Callable[[Context, Any], Answer]
    guard: Guard
    _: KW_ONLY
    changes: bool = False
    is_barrier: Callable[[Broker, Any], bool] | None = None
    walks: bool = False
    lists: bool = False
    reads: Callable[[Broker, Any], int] | None = None
    carries_records: bool = False
    finds_topics_itself: bool = False

    # By version: what encodes a response, and the size of its header with the size of the frame.
    _encoders: dict[int, tuple[_Write, int]] = field(
        default_factory=dict[int, tuple[_Write, int]], init=False, repr=False, compare=False
    )

    def encode(self, version: int, response: Any, correlation_id: int) -> list[bytes | bytearray]:
        """Return the whole frame of a response, in parts; records are not copied."""
        write, head_bytes = self._encoders.get(version) or self._encoder(version)
        head = bytearray(head_bytes)
        SIZE.pack_into(head, SIZE.size, correlation_id)
        parts: list[bytes | bytearray] = []
        write(response, head, parts)
        set_size(parts)
        return parts

    def _encoder(self, version: int) -> tuple[_Write, int]:
        api = self.api
        head = response_head(0, flexible=api.is_flexible(version) and not api.has_plain_response_header)
        write = schema.gathering_writer(api.response, version, api.is_flexible(version))
        encoder = self._encoders[version] = (write, len(head))
        return encoder

    def encode_in_steps(
        self, version: int, response: Any, correlation_id: int, parts: list[bytes | bytearray]
    ) -> Iterator[None]:
        """Append what ``encode`` returns to ``parts``, in steps that are short enough for a turn of the loop."""
        api = self.api
        head = response_head(correlation_id, flexible=api.is_flexible(version))
        write = schema.writer_in_steps(api.response, version, api.is_flexible(version))
        yield from write(response, head, parts)
        set_size(parts)

    def guarded(self) -> Served:
        """Return the row with its guard before the handler: checks are timed and charged with the request."""
        handle, check = self.handle, self.guard.check

        def checked(context: Context, request: Any) -> Answer:
            answer = check(context, request, handle)
            if not isinstance(answer, GeneratorType):
                return answer
            steps = cast("Steps[Answer]", answer)
            return _in_turns(steps) if context.is_long else at_once(steps)

        return replace(self, handle=checked)


async def _in_turns(steps: Steps[Answer]) -> Answer:
    return await awaited(await in_turns(steps))


def always(_broker: Broker, _request: Any) -> bool:
    """Make every request of an API a barrier."""
    return True
