"""Set the times of batches as ``message.timestamp.type`` says."""

from __future__ import annotations

from stele.wire.record_batch import NO_TIMESTAMP, BatchHeader, set_log_append_time, settle_create_time

from ..clock import Clock
from .topic_config import TopicConfig


def stamp(
    config: TopicConfig, batches: bytearray | memoryview, headers: list[BatchHeader], clock: Clock
) -> int:
    """Return the log append time that the batches got.

    It is -1 if they keep the times of their producer.
    """
    if config.message_timestamp_type == "CreateTime":
        for header in headers:
            settle_create_time(batches, header)
        return NO_TIMESTAMP
    now_ms = clock.now_ms()
    for header in headers:
        set_log_append_time(batches, header, now_ms)
    return now_ms
