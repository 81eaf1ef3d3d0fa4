"""The age of the records of a segment, whatever timestamps producers gave them.

Retention deletes by the times of records. A batch header states the newest of
them, but the producer wrote that header, and some producers write it wrong:
librdkafka states ``base timestamp -1, max timestamp 0`` for records without a
time. Records are not decoded when they are appended, so three sources are
weighed when they are about to be deleted:

``claimed``   the newest time that a batch header states; -1 if none does
``arrival``   when the broker last appended to the segment: a record without a
              time counts from here, and no record may be dated more than
              ``message.timestamp.after.max.ms`` after it
``records``   the newest time of the records themselves, which costs reading them

::

        claimed                  arrival            arrival + after.max
    ───────┼────────────────────────┼──────────────────────┼─────────▶ time
           └ no record is older     └ untimed records      └ no record is newer
             than this claims         count from here        than this

``judge`` deletes what even the latest possible time cannot protect, keeps what
the claim protects, and asks for the records only in between: not even then if
waiting for the latest possible time costs little beside ``retention.ms``.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import Enum, auto

from stele.wire import record_batch as rb

from ..topic_config import TopicConfig

# A tenth of a millisecond of decoding.
_RECORDS_PER_SLICE = 500
# Rather than read a segment, keep it longer by up to this part of retention.ms.
_PATIENCE = 16


class Verdict(Enum):
    """The verdict of retention by time on a segment or a batch."""

    KEEP = auto()
    DELETE = auto()
    READ = auto()


@dataclass(frozen=True, slots=True)
class RecordAge:
    """The times of records that were read. ``newest_ms`` is -1 if no record has one."""

    newest_ms: int = rb.NO_TIMESTAMP
    has_untimed: bool = False

    def __or__(self, other: RecordAge) -> RecordAge:
        return RecordAge(
            max(self.newest_ms, other.newest_ms),
            self.has_untimed or other.has_untimed,
        )


def retention_verdict(
    config: TopicConfig,
    *,
    claimed_ms: int,
    arrival_ms: int,
    records: RecordAge | None,
    now_ms: int,
    retention_ms: int,
) -> Verdict:
    """Judge by the configuration of a topic; see ``judge``.

    If ``retention_ms``, that of the topic or of its part on this disk, is negative, everything is kept.
    """
    if retention_ms < 0:
        return Verdict.KEEP
    return judge(
        claimed_ms=claimed_ms,
        arrival_ms=arrival_ms,
        records=records,
        now_ms=now_ms,
        retention_ms=retention_ms,
        after_max_ms=config.message_timestamp_after_max_ms,
    )


def judge(
    *,
    claimed_ms: int,
    arrival_ms: int,
    records: RecordAge | None,
    now_ms: int,
    retention_ms: int,
    after_max_ms: int,
) -> Verdict:
    """Whether records are past ``retention_ms``; ``records`` is None until they have been read.

    All arguments are in ms; ``retention_ms`` is not negative.
    """
    limit_ms, latest_ms = now_ms - retention_ms, arrival_ms + after_max_ms
    if latest_ms < limit_ms:
        return Verdict.DELETE
    if records is not None:
        newest_ms = max(records.newest_ms, arrival_ms) if records.has_untimed else records.newest_ms
        return Verdict.KEEP if newest_ms >= limit_ms else Verdict.DELETE
    if claimed_ms < 0:
        claimed_ms = arrival_ms
    if claimed_ms >= limit_ms or latest_ms - claimed_ms <= retention_ms // _PATIENCE:
        return Verdict.KEEP
    return Verdict.READ


def age_of_header(header: rb.BatchHeader) -> RecordAge | None:
    """Return the times of a batch that the broker itself wrote.

    None if the records must be read.
    """
    if header.is_control:
        return RecordAge()
    return RecordAge(header.max_timestamp) if header.is_log_append_time else None


def age_of_batch(batch: rb.Buffer) -> RecordAge:
    """Return the times of the records of the batch at byte 0; for threads.

    A batch that is corrupt, or whose records cannot be decoded, counts by its
    header and by its arrival.
    """
    header = rb.read_header(batch)
    age = RecordAge()
    try:
        rb.check_batch(batch)
        for records in rb.decode_slices(batch, header, _RECORDS_PER_SLICE):
            times = [record.timestamp for record in records]
            age |= RecordAge(max(times), min(times) < 0)
            # Give up the interpreter lock, which decoding would keep for milliseconds.
            time.sleep(0)
    except rb.CorruptBatchError:
        return age | RecordAge(header.max_timestamp, has_untimed=True)
    return age


def newest_in_batch(batch: rb.Buffer, *, from_offset: int) -> int:
    """Return the newest time of the records from ``from_offset`` on; for threads.

    They are those of the batch at byte 0; -1 if there is none. A batch whose records cannot be decoded counts by its header.
    """
    header = rb.read_header(batch)
    try:
        return max(
            (
                record.timestamp
                for records in rb.decode_slices(batch, header, _RECORDS_PER_SLICE)
                for record in records
                if record.offset >= from_offset
            ),
            default=rb.NO_TIMESTAMP,
        )
    except rb.CorruptBatchError:
        return header.max_timestamp
