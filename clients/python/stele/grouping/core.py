"""Options, leases and failed batches of both groups, without I/O."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict

from .. import forks
from ..errors import GroupError, LeaseLostError, SteleClientError
from ..operations.leases import Poll
from ..records import LeasedPartition, NewRecord, Polled, Record, SkippedRecords
from ..wire.messages import ANY_NUMBER

logger: logging.Logger = logging.getLogger(__name__)

# Headers of a dead letter: its topic, partition, offset and group; and the error.
DEAD_LETTER_HEADERS = ("stele.dead.topic", "stele.dead.partition", "stele.dead.offset", "stele.dead.group")
DEAD_LETTER_ERROR = "stele.dead.error"
_ERROR_CHARACTERS_MAX = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOptions:
    """Validated options of a group.

    - ``max_records``: the most records per batch.
    - ``wait_s``: how long a poll waits for records.
    - ``lease_s``: the duration of a lease. The lease of a batch is extended while the
      batch is handled, for at most ``handling_s_max`` after the poll.
    - ``start``: where a new group starts, ``"earliest"`` or ``"latest"``.
    - ``on_error``: after an exception in a batch, ``"raise"`` returns the records and
      raises; ``"redeliver"`` returns them and continues with the next batch.
    - ``dead_letter_topic``: with ``"redeliver"``, the topic for records that failed
      ``max_deliveries`` times. Failed records are redelivered in ever smaller batches.
    """

    max_records: int = 500
    wait_s: float = 5.0
    lease_s: float = 30.0
    handling_s_max: float = 300.0
    start: Literal["earliest", "latest"] = "earliest"
    on_error: Literal["raise", "redeliver"] = "raise"
    dead_letter_topic: str | None = None
    max_deliveries: int = 8

    def __post_init__(self) -> None:
        """Raises ValueError for an invalid option."""
        for name in ("max_records", "lease_s", "handling_s_max", "max_deliveries"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be more than 0")
        if self.wait_s < 0:
            raise ValueError(f"wait_s is {self.wait_s}; it must not be negative")
        if self.start not in ("earliest", "latest"):
            raise ValueError(f"start is {self.start!r}; it must be 'earliest' or 'latest'")
        if self.on_error not in ("raise", "redeliver"):
            raise ValueError(f"on_error is {self.on_error!r}; it must be 'raise' or 'redeliver'")
        if self.dead_letter_topic is not None and self.on_error != "redeliver":
            raise ValueError("a dead-letter topic needs on_error='redeliver'")

    @property
    def lease_ms(self) -> int:
        return max(1, int(self.lease_s * 1000))

    def poll(self, group: str, topics: Sequence[str]) -> Poll:
        return Poll(
            group=group,
            topics=topics,
            poll_id=uuid.uuid4().hex,
            start=self.start,
            max_records=self.max_records,
            # So that a failure concerns one partition only.
            max_partitions=ANY_NUMBER if self.dead_letter_topic is None else 1,
            max_wait_ms=int(self.wait_s * 1000),
            lease_ms=self.lease_ms,
        )


class GroupSettings(TypedDict, total=False):
    """Keyword arguments of a group; see ``GroupOptions``."""

    max_records: int
    wait_s: float
    lease_s: float
    handling_s_max: float
    start: Literal["earliest", "latest"]
    on_error: Literal["raise", "redeliver"]
    dead_letter_topic: str | None
    max_deliveries: int


class BatchCore:
    """The records of one lease."""

    def __init__(self, polled: Polled) -> None:
        assert polled.lease is not None
        self.lease: str = polled.lease
        self.records: list[Record[bytes]] = polled.records
        self.partitions: list[LeasedPartition] = polled.partitions
        self.skipped: list[SkippedRecords] = polled.skipped
        self._lost: LeaseLostError | None = None
        # A transaction settles the lease when it ends: it does not expire, and is not acknowledged here.
        self.is_in_transaction = False
        self._is_entered = False
        self.is_of_parent: bool = False
        forks.in_child(self._renew_in_child)

    def _renew_in_child(self) -> None:
        """Leave the end of a block to the parent, if that has entered it."""
        if self._is_entered:
            self.is_of_parent = True
            self._lost = in_block_of_parent()

    def check_process(self) -> None:
        """Raise ``LeaseLostError`` if the parent process has entered the block."""
        if self.is_of_parent:
            self.check()

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Record[bytes]]:
        for record in self.records:
            self.check()
            yield record

    def check(self) -> None:
        """Raise ``LeaseLostError`` if the lease was lost."""
        if self._lost is not None:
            raise self._lost.twin()

    @property
    def group_id(self) -> str:
        """The id of the group that the records were polled for."""
        raise NotImplementedError

    @property
    def deliveries(self) -> int:
        """The number of deliveries of these records, including this one."""
        return max(part.deliveries for part in self.partitions)


def in_block_of_parent() -> LeaseLostError:
    """Return the error of a block that was entered before the process was forked."""
    return LeaseLostError(
        "the block was entered before this process was forked, and its end in the parent settles the records; "
        "poll in the child"
    )


class LeaseTimes:
    """Decides whether a lease is still held; times are seconds of any monotonic clock."""

    def __init__(self, options: GroupOptions, now_s: float) -> None:
        self._options = options
        self._lease_ends_s = now_s + options.lease_s
        self._handling_ends_s = now_s + options.handling_s_max

    def overdue(self, now_s: float) -> LeaseLostError | None:
        """Return an error if handling the batch took over ``handling_s_max``, else None."""
        if now_s <= self._handling_ends_s:
            return None
        return LeaseLostError(
            f"the batch was not handled within {self._options.handling_s_max} s; raise handling_s_max, "
            "or take fewer records at once"
        )

    def extended(self, now_s: float) -> None:
        self._lease_ends_s = now_s + self._options.lease_s

    def not_extended(self, error: SteleClientError, now_s: float) -> LeaseLostError | None:
        """Return the error of a lost lease.

        None while a retry may still extend it in time.
        """
        if isinstance(error, GroupError) or not error.retriable or now_s > self._lease_ends_s:
            return LeaseLostError(f"the lease is lost: {error}")
        return None


class GroupCore:
    """Options and decisions of a group; the subclasses do the I/O."""

    def __init__(self, group: str, topics: Sequence[str], options: GroupSettings) -> None:
        """Raises ValueError if no topic is given or an option is invalid."""
        if not topics:
            raise ValueError("name at least one topic to read")
        self.options: GroupOptions = GroupOptions(**options)
        self.group = group
        self.topics: list[str] = list(topics)

    def report_skipped(self, polled: Polled) -> None:
        """Log the records that retention deleted before the group read them."""
        for skipped in polled.skipped:
            logger.warning(
                "group %r: offsets %d to %d of %s-%d were deleted before they were read",
                self.group,
                skipped.offset,
                skipped.next_offset - 1,
                skipped.topic,
                skipped.partition,
            )

    def _redelivers(self, error: BaseException) -> bool:
        return isinstance(error, Exception) and self.options.on_error == "redeliver"

    def dead_letters(self, batch: BatchCore, error: BaseException) -> tuple[str, Iterator[NewRecord]] | None:
        """Return the dead-letter topic and its records.

        None if the batch is to be redelivered.
        """
        topic = self.options.dead_letter_topic
        if not self._redelivers(error) or topic is None or batch.deliveries < self.options.max_deliveries:
            return None
        logger.error(
            "group %r: sent %d records to dead-letter topic %s after %d deliveries: %s",
            self.group,
            len(batch),
            topic,
            batch.deliveries,
            error,
        )
        return topic, dead_letters(self.group, batch.records, error)

    def absorbs(self, batch: BatchCore, error: BaseException) -> bool:
        """Return whether the group continues after ``error``; if so, log the redelivery."""
        if not self._redelivers(error):
            return False
        logger.warning("group %r: returned %d records for redelivery: %s", self.group, len(batch), error)
        return True


def dead_letters(group: str, records: Sequence[Record[bytes]], error: BaseException) -> Iterator[NewRecord]:
    """Yield dead letters.

    The records unchanged, with headers for their origin and error.
    """
    reason = f"{type(error).__name__}: {error}"[:_ERROR_CHARACTERS_MAX]
    for record in records:
        origin = (record.topic, str(record.partition), str(record.offset), group)
        yield NewRecord(
            record.value,
            key=record.key,
            timestamp=record.timestamp,
            headers=[
                *record.headers,
                *zip(DEAD_LETTER_HEADERS, origin, strict=True),
                (DEAD_LETTER_ERROR, reason),
            ],
        )
