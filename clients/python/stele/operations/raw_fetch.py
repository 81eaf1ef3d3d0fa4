"""Fetches that return batches, for callers that decode them."""

from __future__ import annotations

from dataclasses import dataclass

from ..wire import messages as m
from ..wire.error_codes import ErrorCode
from ..wire.isolation_level import IsolationLevel
from .base import HttpAnswer, HttpRequest, Operation, copied, expect
from .fetch import Fetch, partition_error, read_bound


@dataclass(frozen=True, slots=True, kw_only=True)
class RawBatches:
    """Batches as stored in the log; the first may start before the requested offset.

    Batches without records stand for those that the isolation level hides. ``high_watermark`` is
    the offset up to which the fetch could read.
    """

    batches: bytes
    high_watermark: int
    log_start_offset: int


class RawFetch(Operation[RawBatches]):
    """A fetch of one partition without decoding; with ``topic_id`` of the topic that has this id."""

    is_repeatable = True
    topic: str
    partition: int
    offset: int
    max_bytes: int
    isolation: IsolationLevel = IsolationLevel.READ_COMMITTED
    topic_id: str | None = None

    def _fetch(self) -> Fetch:
        partition = m.FetchPartition(
            topic=self.topic, partition=self.partition, offset=self.offset, max_bytes=self.max_bytes
        )
        return Fetch(
            partitions=(partition,),
            max_bytes=self.max_bytes,
            isolation=self.isolation,
            topic_id=self.topic_id,
        )

    def to_frame(self) -> m.Request:
        return self._fetch().to_frame()

    def from_frame(self, response: m.Response) -> RawBatches:
        (fetched,) = expect(response, m.FetchResponse).partitions
        if fetched.code is not ErrorCode.NONE:
            raise partition_error(fetched)
        return copied(RawBatches, fetched)

    def to_http(self) -> HttpRequest:
        return self._fetch().to_http()

    def from_http(self, answer: HttpAnswer) -> RawBatches:
        return RawBatches(
            batches=answer.body,
            high_watermark=read_bound(answer, self.isolation),
            log_start_offset=answer.header_int("Log-Start-Offset"),
        )
