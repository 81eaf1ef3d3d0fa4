"""Delete a topic, or create it again, at each point at which a request waits."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Awaitable, Callable, Collection, Coroutine, Generator
from contextlib import suppress
from typing import Any, TypeVar

from app.broker.broker import Broker
from app.broker.placement import Placement
from app.errors import TopicExists
from app.storage.topic_partition import TopicPartition

_T = TypeVar("_T")


class DeletedAt:
    """Awaits a coroutine, and ``delete`` before it goes on after its ``point``-th wait.

    ``has_deleted`` is False if it has waited less often: then there is no such point.
    """

    def __init__(self, point: int, delete: Callable[[], Awaitable[object]]) -> None:
        self._left = point
        self._delete = delete
        self.has_deleted = False

    async def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        return await self._steps(work)

    @types.coroutine
    def _steps(self, work: Coroutine[Any, Any, _T]) -> Generator[Any, Any, _T]:
        sent: Any = None
        error: BaseException | None = None
        while True:
            try:
                awaited = work.send(sent) if error is None else work.throw(error)
            except StopIteration as ended:
                return ended.value
            error = None
            self._left -= 1
            try:
                sent = yield awaited
            except BaseException as raised:  # noqa: BLE001 - it is that of the work
                error = raised
            if self._left == 0:
                self.has_deleted = True
                # In a task of its own, because this one is in the middle of another wait.
                deleting = asyncio.ensure_future(self._delete())
                while not deleting.done():
                    try:
                        yield from asyncio.wait((deleting,)).__await__()
                    except asyncio.CancelledError as raised:
                        error = raised
                deleting.result()


async def delete_topic(broker: Broker, name: str, *, is_made_anew: bool = False) -> None:
    """Delete a topic if it is there, unless the request itself is about to change it."""
    topics = broker._topics
    if topics.get(name) is not None and not topics._changes.locked():
        await broker.delete_topic(name)
        if is_made_anew:
            # A produce that waits beside this may have created it meanwhile.
            with suppress(TopicExists):
                await broker.create_topic(name, placement=Placement(partitions=1))


async def far_away(_partitions: Collection[TopicPartition]) -> bool:
    """Wait for the end of a log, as an engine does that is shared by several brokers."""
    await asyncio.sleep(0)
    return False
