"""The last check of each partition's bytes, as long as the broker runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..broker.broker import Broker
from ..storage.disk_views import Verification

# Partitions whose last check is remembered.
_KEPT_MAX = 1000
_PROBLEMS_MAX = 100


class Verifications:
    """The last check of each partition, as it was answered."""

    def __init__(self) -> None:
        self.running = ""
        self._last: dict[tuple[str, int], dict[str, Any]] = {}

    @property
    def is_running(self) -> bool:
        return bool(self.running)

    def last(self, topic: str, partition: int) -> dict[str, Any] | None:
        return self._last.get((topic, partition))

    async def run(
        self, broker: Broker, topic: str, partition: int, is_stopped: Callable[[], bool]
    ) -> dict[str, Any] | None:
        """Check a partition and keep the result; None if it was stopped. The caller asks ``is_running`` first.

        ``is_stopped`` is asked in a thread.
        """
        assert not self.is_running
        self.running = f"{topic}-{partition}"
        begin_ms = broker.now_ms()
        try:
            found = await broker.verify(topic, partition, is_stopped)
        finally:
            self.running = ""
        if found is None:
            return None
        return self._keep(topic, partition, found, at_ms=begin_ms, end_ms=broker.now_ms())

    def _keep(
        self, topic: str, partition: int, found: Verification, *, at_ms: int, end_ms: int
    ) -> dict[str, Any]:
        document = {
            "topic": topic,
            "partition": partition,
            "is_good": not found.problems,
            "at": at_ms,
            "took_ms": max(0, end_ms - at_ms),
            "segments": found.segments,
            "batches": found.batches,
            "records": found.records,
            "size_bytes": found.size_bytes,
            "problem_count": len(found.problems),
            "problems": found.problems[:_PROBLEMS_MAX],
        }
        self._last.pop((topic, partition), None)
        self._last[topic, partition] = document
        if len(self._last) > _KEPT_MAX:
            del self._last[next(iter(self._last))]
        return document

    def forget(self, topic: str) -> None:
        for key in [key for key in self._last if key[0] == topic]:
            del self._last[key]
