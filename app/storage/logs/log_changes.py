"""Which logs of a data directory have changed since somebody looked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ..topic_partition import TopicPartition
from .log import DiskLog


class LogChanges:
    """Collects logs that were appended to, whose segments or log start have changed, or that are gone."""

    __slots__ = ("_changed", "_logs", "note")

    def __init__(self, logs: Mapping[TopicPartition, DiskLog]) -> None:
        self._logs = logs
        # In the order of their changes, so that runs of tests are the same.
        self._changed: dict[DiskLog, None] = {}
        # A method of the dictionary, because each append calls it.
        self.note: Callable[[DiskLog], object] = self._changed.setdefault

    def __len__(self) -> int:
        return len(self._changed)

    def take(self) -> list[DiskLog]:
        """Return the logs that have changed since the last call."""
        changed = list(self._changed)
        self._changed.clear()
        return changed

    def put_back(self, logs: Iterable[DiskLog]) -> None:
        """Have ``take`` return these again."""
        self._changed.update(dict.fromkeys(logs))

    def note_all(self) -> None:
        """Have ``take`` return all open logs."""
        self.put_back(self._logs.values())

    def is_open(self, log: DiskLog) -> bool:
        """Return False for the log of a deleted topic."""
        return self._logs.get(log.topic_partition) is log
