"""Copies committed offsets: those of groups of the source, while the group has no members here."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from ..errors import GroupError, SteleClientError
from ..records import TopicPartition
from .source import reads
from .source.cluster import Source
from .source.reads import Commit, Committed
from .target import Target

# Then all are written again: a cluster forgets those of a group without members, Kafka after a week.
_ALL_AGAIN_S = 12 * 3600.0


def due_commits(
    committed: Committed,
    written: Committed,
    end_of: Callable[[TopicPartition], int | None],
) -> list[tuple[TopicPartition, Commit]]:
    """Return the offsets to write: those that changed, of partitions that are copied, and not past their ends."""
    due: list[tuple[TopicPartition, Commit]] = []
    for name, commit in sorted(committed.items()):
        end = end_of(name)
        if end is not None and commit.offset <= end and written.get(name) != commit:
            due.append((name, commit))
    return due


class Groups:
    """The groups of a mirror; ``busy`` are those that have members here, and were left alone."""

    def __init__(
        self,
        source: Source,
        target: Target,
        *,
        pattern: re.Pattern[str],
        end_of: Callable[[TopicPartition], int | None],
    ) -> None:
        """``end_of`` returns where a copy ends, None if there is none."""
        self._source = source
        self._target = target
        self._pattern = pattern
        self._end_of = end_of
        self._written: dict[str, Committed] = {}
        self._all_at_s = time.monotonic()
        self.busy: set[str] = set()
        self.count: int = 0

    async def copy(self) -> None:
        """Write what has changed since the last time.

        A group that is refused does not keep the others from being written.

        Raises:
            SourceError, SteleClientError: some were not written; the next call writes them.
        """
        if time.monotonic() - self._all_at_s >= _ALL_AGAIN_S:
            self._written.clear()
            self._all_at_s = time.monotonic()
        found: dict[str, Committed] = {}
        for broker in self._source.brokers:
            names = [
                name for name in await reads.groups(self._source, broker) if self._pattern.fullmatch(name)
            ]
            found |= await reads.committed(self._source, broker, names)
        self.count = len(found)
        for gone in self._written.keys() - found.keys():
            # It may come back with the same offsets, and others may have moved the group here meanwhile.
            del self._written[gone]
        failure: SteleClientError | None = None
        for group, committed in found.items():
            written = self._written.setdefault(group, {})
            due = due_commits(committed, written, self._end_of)
            if not due:
                continue
            try:
                await self._target.commit(group, due)
            except GroupError:
                self.busy.add(group)
                # What its members commit counts; once they are gone, the source's offsets are written again.
                written.clear()
            except SteleClientError as error:
                if error.retriable:
                    raise
                failure = error
            else:
                self.busy.discard(group)
                written.update(due)
        if failure is not None:
            raise failure
