"""Options of both queues, and what they know of the records that they hold.

Without I/O.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict

from ..operations.share_queue import Settle, Settlement, SharePoll
from ..records import Headers, Record, SharePolled
from .core import in_block_of_parent


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOptions:
    """Validated options of a queue.

    - ``max_records``: the most records that are taken at once. They are locked together, so a
      reader that needs long for a record should take few.
    - ``wait_s``: how long a poll waits for records.
    - ``start``: where a new group starts, ``"earliest"`` or ``"latest"``; None: by the
      configuration ``share.auto.offset.reset`` of the group.
    """

    max_records: int = 10
    wait_s: float = 5.0
    start: Literal["earliest", "latest"] | None = "earliest"

    def __post_init__(self) -> None:
        """Raises ValueError for an invalid option."""
        if self.max_records <= 0:
            raise ValueError(f"max_records is {self.max_records}; it must be more than 0")
        if self.wait_s < 0:
            raise ValueError(f"wait_s is {self.wait_s}; it must not be negative")
        if self.start not in (None, "earliest", "latest"):
            raise ValueError(f"start is {self.start!r}; it must be 'earliest' or 'latest'")


class QueueSettings(TypedDict, total=False):
    """Keyword arguments of a queue; see ``QueueOptions``."""

    max_records: int
    wait_s: float
    start: Literal["earliest", "latest"] | None


class QueuedRecordCore:
    """A record that a queue holds under a lock.

    ``deliveries`` counts how often it was delivered, including this time. ``is_settled``: it was
    acknowledged, released or rejected.
    """

    __slots__ = ("_entered_by", "deliveries", "is_settled", "lock", "record")

    def __init__(self, record: Record[bytes], deliveries: int, lock: str) -> None:
        self.record: Record[bytes] = record
        self.deliveries: int = deliveries
        self.lock: str = lock
        self.is_settled: bool = False
        # The process that has entered the block of the record.
        self._entered_by = 0

    def _enter(self) -> None:
        self._entered_by = os.getpid()

    def _may_settle(self, error: BaseException | None) -> bool:
        """Return whether the end of the block settles the record.

        Raises ``LeaseLostError`` if the block was entered by the parent process, unless there is an error.
        """
        if self._entered_by == os.getpid():
            return not self.is_settled
        if error is None:
            raise in_block_of_parent()
        return False

    @property
    def topic(self) -> str:
        return self.record.topic

    @property
    def partition(self) -> int:
        return self.record.partition

    @property
    def offset(self) -> int:
        return self.record.offset

    @property
    def timestamp(self) -> int:
        return self.record.timestamp

    @property
    def key(self) -> bytes | None:
        return self.record.key

    @property
    def value(self) -> bytes | None:
        return self.record.value

    @property
    def headers(self) -> Headers:
        return self.record.headers

    def __repr__(self) -> str:
        return f"<{self.topic}-{self.partition} offset {self.offset}, delivery {self.deliveries}>"


class QueueCore:
    """What both queues know: the options, and when the lock of the last poll ends."""

    def __init__(self, group: str, topics: Sequence[str], options: QueueSettings) -> None:
        if not topics:
            raise ValueError("a queue reads at least one topic")
        self.group = group
        self.topics = topics
        self.options: QueueOptions = QueueOptions(**options)
        self._renew_at_s = 0.0

    def poll_operation(self) -> SharePoll:
        options = self.options
        return SharePoll(
            group=self.group,
            topics=self.topics,
            lock=uuid.uuid4().hex,
            start=options.start,
            max_records=options.max_records,
            wait_ms=int(options.wait_s * 1000),
        )

    def note_polled(self, polled: SharePolled, now_s: float) -> None:
        self._note_lock(polled.expires_in_ms, now_s)

    def _note_lock(self, expires_in_ms: int, now_s: float) -> None:
        # Half of the lock is left for the answer, and for the record that is being handled.
        self._renew_at_s = now_s + expires_in_ms / 2000

    def settle_operations(self, kind: Settlement, records: Iterable[QueuedRecordCore]) -> list[Settle]:
        """Return one operation per lock."""
        by_lock: dict[str, list[Record[bytes]]] = {}
        for record in records:
            by_lock.setdefault(record.lock, []).append(record.record)
        return [
            Settle(group=self.group, kind=kind, lock=lock, records=named) for lock, named in by_lock.items()
        ]

    def must_renew(self, now_s: float) -> bool:
        """Return whether the remaining records should be renewed first.

        They are those of the last poll.
        """
        return now_s >= self._renew_at_s
