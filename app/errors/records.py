"""Errors about batches that cannot be appended and offsets that cannot be read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .base import RequestError

# Records named in one refusal; the others of the batch are refused with them.
RECORD_ERRORS_MAX = 1000


@dataclass(frozen=True, slots=True)
class RecordError:
    """The reason why a record caused its batch to be refused; ``index`` counts from 0.

    ``pointer`` is the place within the key or value, a JSON pointer, if its schema refuses it.
    """

    index: int
    reason: str
    pointer: str = ""

    def __str__(self) -> str:
        return f"record {self.index} was refused: {self.reason}"


class InvalidBatch(RequestError):
    """The bytes are not a valid RecordBatch v2.

    ``is_damaged``: its CRC does not match, so the batch may be valid if it is sent again.
    ``record_errors`` names the records at fault, at most ``RECORD_ERRORS_MAX``; it is empty
    if the fault is in the batch itself.
    """

    def __init__(
        self, reason: str, *, is_damaged: bool = False, record_errors: Sequence[RecordError] = ()
    ) -> None:
        super().__init__(f"the record batch is not valid: {reason}; none of it was stored")
        self.reason = reason
        self.is_damaged = is_damaged
        self.record_errors = tuple(record_errors)


class InvalidTimestamp(RequestError):
    """The topic does not accept the timestamps of ``refused`` records.

    ``record_errors`` names the first of them, at most ``RECORD_ERRORS_MAX``.
    """

    def __init__(self, record_errors: Sequence[RecordError], *, refused: int = 1) -> None:
        more = f"; {refused - 1} more were refused" if refused > 1 else ""
        super().__init__(f"{record_errors[0]}{more}; none of the batch was stored")
        self.record_errors = tuple(record_errors)
        self.refused = refused


class MissingKey(RequestError):
    """``refused`` records have no key, and the topic is compacted.

    ``record_errors`` names the first of them, at most ``RECORD_ERRORS_MAX``.
    """

    def __init__(self, topic: str, indexes: Sequence[int], *, refused: int = 1) -> None:
        reason = f"it has no key, and topic {topic!r} is compacted; send a key with every record"
        self.record_errors = tuple(RecordError(index, reason) for index in indexes)
        more = f"; {refused - 1} more were refused" if refused > 1 else ""
        super().__init__(f"{self.record_errors[0]}{more}; none of the batch was stored")
        self.topic = topic
        self.refused = refused


class BrokenContract(RequestError):
    """``refused`` records lack the schemas that their topic asks for, or their schemas do not describe them.

    ``record_errors`` names the first of them. ``index`` and ``pointer`` are those of the first one; the index is that
    within the batch, unless the error was ``renumbered``.
    """

    def __init__(self, topic: str, record_errors: Sequence[RecordError], *, refused: int = 1) -> None:
        more = f"; {refused - 1} more were refused" if refused > 1 else ""
        super().__init__(f"{record_errors[0]}{more}; none of the batch for topic '{topic}' was stored")
        self.topic = topic
        self.record_errors = tuple(record_errors)
        self.refused = refused
        self.index = record_errors[0].index
        self.pointer = record_errors[0].pointer

    def renumbered(self, indexes: Sequence[int]) -> BrokenContract:
        """Return the error with the indexes of a request, given those of the records of the batch."""
        errors = [replace(error, index=indexes[error.index]) for error in self.record_errors]
        return BrokenContract(self.topic, errors, refused=self.refused)

    def at(self, index: int) -> BrokenContract:
        """Return the error of the record with an index: itself, if that record is refused only with the others."""
        own = [error for error in self.record_errors if error.index == index]
        return BrokenContract(self.topic, own) if own else self


class UnsupportedCompression(RequestError):
    def __init__(self, codec: str, reason: str) -> None:
        super().__init__(f"the record batch is compressed with {codec}: {reason}")
        self.codec = codec
        self.reason = reason


class BatchTooLarge(RequestError):
    """Sizes in bytes."""

    def __init__(self, size: int, *, limit: int, what: str = "record batch") -> None:
        super().__init__(
            f"a {what} of {size} bytes exceeds the limit of {limit}; "
            "send smaller ones, or raise max.message.bytes of the topic"
        )
        self.size = size
        self.limit = limit


class InvalidAcks(RequestError):
    def __init__(self, acks: object) -> None:
        super().__init__(f"acks is {acks!r}; it must be 0, 1 or all (-1)")
        self.acks = acks


class OutOfOrderSequence(RequestError):
    def __init__(self, *, producer_id: int, sequence: int, expected: int) -> None:
        super().__init__(
            f"producer {producer_id} sent sequence {sequence}, but {expected} comes next: a batch is missing; "
            "send that first, or start with a new producer id"
        )
        self.producer_id = producer_id
        self.sequence = sequence
        self.expected = expected


class DuplicateSequence(RequestError):
    """The batch was stored so long ago that its offsets are no longer remembered."""

    def __init__(self, *, producer_id: int, sequence: int) -> None:
        super().__init__(
            f"producer {producer_id} sent sequence {sequence} again; it is already stored: do not retry it"
        )
        self.producer_id = producer_id
        self.sequence = sequence


class ProducerFenced(RequestError):
    def __init__(self, *, producer_id: int, epoch: int, current_epoch: int) -> None:
        super().__init__(
            f"producer {producer_id} has epoch {epoch}, but epoch {current_epoch} is current: "
            "a newer instance took over; stop, or request a new producer id"
        )
        self.producer_id = producer_id
        self.epoch = epoch
        self.current_epoch = current_epoch


class UnexpectedEnd(RequestError):
    """The log of the partition does not end where a conditional append expects it; nothing was stored.

    ``log_end_offset`` is the actual end. Readers may not see all records before it yet. ``expected`` is text if a
    client gave something else than an offset.
    """

    def __init__(self, *, topic: str, partition: int, expected: int | str, log_end_offset: int) -> None:
        super().__init__(
            f"{topic}-{partition} ends at offset {log_end_offset}, not at {expected}; nothing was stored: "
            "read what is new, then append with the new end"
        )
        self.topic = topic
        self.partition = partition
        self.expected = expected
        self.log_end_offset = log_end_offset


class OffsetOutOfRange(RequestError):
    """``offset`` is outside ``[log_start_offset, log_end_offset]``."""

    def __init__(
        self, *, topic: str, partition: int, offset: int, log_start_offset: int, log_end_offset: int
    ) -> None:
        super().__init__(
            f"offset {offset} of {topic}-{partition} is out of range: "
            f"the log has {log_start_offset} to {log_end_offset}"
        )
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset

    @property
    def is_gone(self) -> bool:
        """True if the record was deleted from the start of the log."""
        return 0 <= self.offset < self.log_start_offset
