"""Checks record timestamps against the bounds of their topic.

The bounds are ``message.timestamp.before.max.ms`` and ``message.timestamp.after.max.ms``.
A batch header states the newest timestamp and that of the first record. As long
as these are acceptable and the topic has no bound on the past, the records of a
batch are not decoded. Otherwise a thread looks at all of them, to name those that
are refused. As in Apache Kafka a record without a timestamp (-1) is
accepted, and a topic that stamps records itself accepts any timestamp.
"""

from __future__ import annotations

from dataclasses import dataclass

from stele.wire.record_batch import NO_TIMESTAMP, BatchHeader, RecordView

from ...errors import RECORD_ERRORS_MAX, InvalidTimestamp, RecordError
from ...storage.topic_config import TopicConfig

# The default of message.timestamp.before.max.ms: any time in the past.
_NO_BOUND_MS = 2**63 - 1


@dataclass(frozen=True, slots=True)
class TimestampBounds:
    """Accepts timestamps from ``earliest_ms`` to ``latest_ms``; None means no bound."""

    earliest_ms: int | None
    latest_ms: int

    def accepts(self, timestamp_ms: int) -> bool:
        return timestamp_ms == NO_TIMESTAMP or (
            timestamp_ms <= self.latest_ms and (self.earliest_ms is None or timestamp_ms >= self.earliest_ms)
        )

    def describe(self, timestamp_ms: int) -> str:
        """Return why ``timestamp_ms`` is refused, and what to do."""
        if timestamp_ms > self.latest_ms:
            return (
                f"its timestamp {timestamp_ms} is later than {self.latest_ms}, the latest accepted now; send "
                "milliseconds since 1970, or raise message.timestamp.after.max.ms of the topic"
            )
        return (
            f"its timestamp {timestamp_ms} is earlier than {self.earliest_ms}, the earliest accepted now; "
            "raise message.timestamp.before.max.ms of the topic to store older records"
        )


def timestamp_bounds(config: TopicConfig, now_ms: int) -> TimestampBounds | None:
    """Return the bounds at ``now_ms``; None if the broker stamps the records."""
    if config.message_timestamp_type != "CreateTime":
        return None
    before_ms = config.message_timestamp_before_max_ms
    return TimestampBounds(
        earliest_ms=None if before_ms == _NO_BOUND_MS else now_ms - before_ms,
        latest_ms=now_ms + config.message_timestamp_after_max_ms,
    )


def has_earliest(config: TopicConfig) -> bool:
    """Return whether the topic refuses old records.

    A batch header does not have the oldest timestamp, so the records must be decoded.
    """
    return (
        config.message_timestamp_type == "CreateTime"
        and config.message_timestamp_before_max_ms != _NO_BOUND_MS
    )


def is_suspicious(header: BatchHeader, config: TopicConfig, now_ms: int) -> bool:
    """Return whether a record may have a bad timestamp, judging by the header."""
    if config.message_timestamp_type != "CreateTime":
        # Only the broker may mark a batch as stamped on arrival.
        return header.is_log_append_time
    latest_ms = now_ms + config.message_timestamp_after_max_ms
    return (
        header.max_timestamp > latest_ms
        or header.base_timestamp > latest_ms
        or config.message_timestamp_before_max_ms != _NO_BOUND_MS
    )


class TimestampCheck:
    """Checks the timestamps of one batch, and collects the records that are refused."""

    def __init__(self, header: BatchHeader, bounds: TimestampBounds | None) -> None:
        self._bounds = bounds
        self._is_stamped_by_producer = bounds is None and header.is_log_append_time
        self._errors: list[RecordError] = []
        self._refused = 0
        self.max_timestamp = NO_TIMESTAMP

    def look_at(self, records: list[RecordView], first_index: int) -> None:
        timestamps_ms = [record.timestamp for record in records]
        latest_ms = max(timestamps_ms)
        self.max_timestamp = max(self.max_timestamp, latest_ms)
        bounds = self._bounds
        if bounds is None:
            if not self._is_stamped_by_producer:
                return
        elif bounds.earliest_ms is None and bounds.accepts(latest_ms):
            return
        for index, timestamp_ms in enumerate(timestamps_ms, first_index):
            if self._is_stamped_by_producer:
                self._refuse(index, "its batch claims log append time, which only the broker may set")
            elif bounds is not None and not bounds.accepts(timestamp_ms):
                self._refuse(index, bounds.describe(timestamp_ms))

    def _refuse(self, index: int, reason: str) -> None:
        self._refused += 1
        if len(self._errors) < RECORD_ERRORS_MAX:
            self._errors.append(RecordError(index, reason))

    def conclude(self) -> None:
        """Raises ``InvalidTimestamp`` if a record was refused."""
        if self._errors:
            raise InvalidTimestamp(self._errors, refused=self._refused)
