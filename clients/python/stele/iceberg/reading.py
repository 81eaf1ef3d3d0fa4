"""Reads what is visible of a topic at read_committed, one fetch ahead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from ..client import Client
from ..errors import OffsetOutOfRangeError, SteleClientError
from ..operations.fetch import ListOffset
from ..operations.raw_fetch import RawBatches, RawFetch
from ..wire import messages as m
from ..wire.record_batch import iter_headers

_FETCH_BYTES = 8 * 1024 * 1024


class OffsetRange(NamedTuple):
    """Offsets of a partition, ``end`` excluded."""

    partition: int
    start: int
    end: int


class Fetched(NamedTuple):
    """Batches of a partition to read from ``start`` on, and where to go on; ``is_lost`` if there is nothing in between."""

    partition: int
    start: int
    end: int
    batches: bytes
    next_offset: int
    is_lost: bool


class TopicReader:
    """Reads topics in one thread, with another that fetches ahead."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._ahead = ThreadPoolExecutor(1, thread_name_prefix="stele-iceberg-fetch")

    def close(self) -> None:
        self._ahead.shutdown(wait=False, cancel_futures=True)

    def bounds(self, topic: str, partitions: int) -> list[OffsetRange]:
        """Return the log start and the last stable offset of each partition, in one round trip.

        Raises:
            UnknownTopicError: it has fewer partitions, or there is no such topic.
        """
        operations = [
            ListOffset(topic=topic, partition=partition, timestamp_ms=time_ms)
            for partition in range(partitions)
            for time_ms in (m.EARLIEST_TIMESTAMP, m.LATEST_TIMESTAMP)
        ]
        offsets: list[int] = []
        for outcome in self._client.transport.call_all(operations, timeout_s=self._client.config.timeout_s):
            if isinstance(outcome, SteleClientError):
                raise outcome
            offsets.append(outcome or 0)
        return [
            OffsetRange(partition, *offsets[2 * partition : 2 * partition + 2])
            for partition in range(partitions)
        ]

    def read(self, topic: str, topic_id: str, ranges: Sequence[OffsetRange]) -> Iterator[Fetched]:
        """Yield the batches of all ranges in turn.

        Raises:
            UnknownTopicError: the topic was deleted, also if another of its name was created.
            SteleClientError
        """
        if not ranges:
            return
        under_way = self._fetch(topic, topic_id, ranges[0].partition, ranges[0].start)
        for index, (partition, offset, end) in enumerate(ranges):
            while True:
                is_lost = False
                try:
                    fetched = under_way.result()
                except OffsetOutOfRangeError as error:
                    if error.log_start_offset <= offset:
                        raise
                    # Retention was faster.
                    batches, following, is_lost = b"", min(error.log_start_offset, end), True
                else:
                    batches = fetched.batches
                    if not batches and fetched.high_watermark < end:
                        raise SteleClientError(
                            f"{topic}-{partition} ends at offset {fetched.high_watermark}, and ended at {end}: it has lost "
                            "its last records, or another broker has taken it over"
                        )
                    following = min(max((h.next_offset for h in iter_headers(batches)), default=end), end)
                if following < end:
                    under_way = self._fetch(topic, topic_id, partition, following)
                elif index + 1 < len(ranges):
                    later = ranges[index + 1]
                    under_way = self._fetch(topic, topic_id, later.partition, later.start)
                yield Fetched(partition, offset, end, batches, following, is_lost)
                offset = following
                if offset >= end:
                    break

    def _fetch(self, topic: str, topic_id: str, partition: int, offset: int) -> Future[RawBatches]:
        operation = RawFetch(
            topic=topic, partition=partition, offset=offset, max_bytes=_FETCH_BYTES, topic_id=topic_id
        )
        return self._ahead.submit(self._client.call, operation)
