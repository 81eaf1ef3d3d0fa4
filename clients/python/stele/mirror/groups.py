"""Copies committed offsets: those of groups of the source, while the group has no members here."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from ..errors import GroupError, SteleClientError
from ..records import TopicPartition
from .source.reads import Commit, Committed, ReadGroups
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
    """The groups of a mirror.

    ``busy`` are those that have members here, and were left alone, ``shares`` those whose state cannot be copied.
    """

    def __init__(
        self,
        read: Callable[[], Awaitable[ReadGroups]],
        target: Target,
        *,
        end_of: Callable[[TopicPartition], int | None],
    ) -> None:
        """``end_of`` returns where a copy ends, None if there is none."""
        self._read = read
        self._target = target
        self._end_of = end_of
        self._written: dict[str, Committed] = {}
        # Two at a time might write in another order than they have read.
        self._copying = asyncio.Lock()
        self._all_at_s = time.monotonic()
        self.busy: set[str] = set()
        self.shares: set[str] = set()

    async def copy(self) -> None:
        """Write what has changed since the last time.

        A broker that does not answer, or a group that is refused, does not keep the others from being written.

        Raises:
            SourceError, SteleClientError: some were not written; the next call writes them.
        """
        async with self._copying:
            if time.monotonic() - self._all_at_s >= _ALL_AGAIN_S:
                self._written.clear()
                self._all_at_s = time.monotonic()
            found, shares, failure = await self._read()
            if failure is None:
                self.shares = shares
                for gone in self._written.keys() - found.keys():
                    # It may come back with the same offsets, and others may have moved the group here meanwhile.
                    del self._written[gone]
            for group, committed in found.items():
                try:
                    await self._write(group, committed)
                except SteleClientError as error:
                    if error.retriable:
                        raise
                    failure = error
            if failure is not None:
                raise failure

    async def _write(self, group: str, committed: Committed) -> None:
        written = self._written.setdefault(group, {})
        due = due_commits(committed, written, self._end_of)
        if any(name not in written for name, _ in due):
            # Members that the group has had here may have got further, and have left for a moment only. Once the source has
            # another offset, it is written.
            here = await self._target.consumed(group)
            moved = {
                name: one for name, one in due if name not in written and here.get(name, -1) > one.offset
            }
            written.update(moved)
            due = [(name, one) for name, one in due if name not in moved]
        if not due:
            return
        try:
            await self._target.commit(group, due)
        except GroupError:
            # What its members commit counts.
            self.busy.add(group)
        else:
            self.busy.discard(group)
            written.update(due)
