"""Who follows a topic live is told which of its partitions got records, and need not look at all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager


class Follower:
    """Notes appends to a topic, or to one partition of it. ``is_ended`` once the topic was deleted."""

    def __init__(self, partition: int | None) -> None:
        self.is_ended = False
        self._only = partition
        self._appended: dict[int, None] = {}
        self._news = asyncio.Event()

    def note(self, partition: int) -> None:
        if self._only is None or self._only == partition:
            self._appended[partition] = None
            self._news.set()

    def end(self) -> None:
        self.is_ended = True
        self._news.set()

    def wake(self) -> None:
        self._news.set()

    def take(self) -> list[int]:
        """The partitions that were appended to since they were last taken."""
        taken = list(self._appended)
        self._appended.clear()
        self._news.clear()
        return taken

    async def wait(self, timeout_s: float) -> None:
        """Return when there is something to take, or it is time to look for another reason."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._news.wait()
        except TimeoutError:
            pass


class Followers:
    """The followers of all topics."""

    def __init__(self) -> None:
        self._by_topic: dict[str, list[Follower]] = {}

    @contextmanager
    def following(self, topic: str, partition: int | None) -> Generator[Follower]:
        follower = Follower(partition)
        self._by_topic.setdefault(topic, []).append(follower)
        try:
            yield follower
        finally:
            followers = self._by_topic[topic]
            followers.remove(follower)
            if not followers:
                del self._by_topic[topic]

    def appended(self, topic: str, partition: int) -> None:
        for follower in self._by_topic.get(topic, ()):
            follower.note(partition)

    def deleted(self, topic: str) -> None:
        for follower in self._by_topic.get(topic, ()):
            follower.end()

    def wake_all(self) -> None:
        for followers in self._by_topic.values():
            for follower in followers:
                follower.wake()
