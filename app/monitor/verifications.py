"""Run checks of the bytes of partitions, and remember the last result of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypedDict

from ..broker.broker import Broker
from ..storage.disk_views import Verification

# Partitions whose last result is remembered, and problems kept per result.
_KEPT_MAX = 1000
_PROBLEMS_MAX = 100


class VerificationJson(TypedDict):
    """The result of a check."""

    topic: str
    partition: int
    is_good: bool
    at: int
    took_ms: int
    segments: int
    batches: int
    records: int
    size_bytes: int
    problem_count: int
    problems: list[str]


class Verifications:
    """The results of checks since the broker started, as JSON objects."""

    def __init__(self) -> None:
        self.running = ""
        self._last: dict[tuple[str, int], VerificationJson] = {}

    @property
    def is_running(self) -> bool:
        return bool(self.running)

    def last(self, topic: str, partition: int) -> VerificationJson | None:
        """Return the last result for a partition, None if it has not been checked."""
        return self._last.get((topic, partition))

    async def run(
        self, broker: Broker, topic: str, partition: int, is_stopped: Callable[[], bool]
    ) -> VerificationJson | None:
        """Check a partition and keep the result; None if the check was stopped.

        Must not be called while ``is_running``. A thread calls ``is_stopped``.
        """
        assert not self.is_running
        self.running = f"{topic}-{partition}"
        begin_ms = broker.now_ms()
        try:
            verification = await broker.storage.verify(topic, partition, is_stopped)
        finally:
            self.running = ""
        if verification is None:
            return None
        return self._keep(topic, partition, verification, at_ms=begin_ms, end_ms=broker.now_ms())

    def _keep(
        self, topic: str, partition: int, verification: Verification, *, at_ms: int, end_ms: int
    ) -> VerificationJson:
        document: VerificationJson = {
            "topic": topic,
            "partition": partition,
            "is_good": not verification.problems,
            "at": at_ms,
            "took_ms": max(0, end_ms - at_ms),
            "segments": verification.segments,
            "batches": verification.batches,
            "records": verification.records,
            "size_bytes": verification.size_bytes,
            "problem_count": len(verification.problems),
            "problems": verification.problems[:_PROBLEMS_MAX],
        }
        self._last.pop((topic, partition), None)
        self._last[topic, partition] = document
        if len(self._last) > _KEPT_MAX:
            del self._last[next(iter(self._last))]
        return document

    def forget(self, topic: str) -> None:
        """Drop the results for a topic that has been deleted."""
        for key in [key for key in self._last if key[0] == topic]:
            del self._last[key]
