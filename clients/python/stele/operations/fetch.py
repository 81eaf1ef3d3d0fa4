"""Operations that read records and find offsets."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from ..errors import CorruptRecordsError, ProtocolError, SteleClientError, error_for
from ..records import FetchedRecords, Record
from ..wire import messages as m
from ..wire.error_codes import ErrorCode
from ..wire.isolation_level import IsolationLevel
from ..wire.record_batch import CorruptBatchError, check_batch, decode_records, plain_batch, plain_size_max
from .base import OCTET_STREAM, HttpAnswer, HttpRequest, Operation, expect, topic_path

FETCH_BYTES_MAX = 8 * 1024 * 1024
PARTITION_BYTES_MAX = 1024 * 1024
# Of all records of one fetch, and of one page of a table. One batch is always decoded.
DECODED_BYTES_MAX = 64 * 1024 * 1024

FetchOutcome = FetchedRecords | SteleClientError


def fetched_records(outcomes: Iterable[FetchOutcome]) -> Iterator[Record[bytes]]:
    """Yield the records that were fetched."""
    for outcome in outcomes:
        if isinstance(outcome, FetchedRecords):
            yield from outcome.records


class Fetch(Operation[list[FetchOutcome]]):
    """Fetch records from an offset per partition; outcomes are in the order requested.

    The broker answers once ``min_bytes`` are available or ``wait_ms`` has passed. Over
    HTTP a fetch has exactly one partition. Records of open and aborted transactions are
    left out unless ``isolation`` is READ_UNCOMMITTED. With ``topic_id``, all partitions are of the topic with this
    id: another one that was created under its name is an error.
    """

    is_repeatable = True
    partitions: Sequence[m.FetchPartition]
    wait_ms: int = 0
    min_bytes: int = 1
    max_bytes: int = FETCH_BYTES_MAX
    isolation: IsolationLevel = IsolationLevel.READ_COMMITTED
    topic_id: str | None = None

    @property
    def wait_s(self) -> float:
        return self.wait_ms / 1000

    def to_frame(self) -> m.Request:
        if self.topic_id is not None:
            return m.TopicFetchRequest(
                partitions=self.partitions,
                max_wait_ms=self.wait_ms,
                min_bytes=self.min_bytes,
                max_bytes=self.max_bytes,
                isolation=self.isolation,
                topic_ids=[
                    m.TopicIdentity(topic=topic, topic_id=UUID(self.topic_id).bytes)
                    for topic in {partition.topic for partition in self.partitions}
                ],
            )
        if self.isolation is not IsolationLevel.READ_COMMITTED:
            return m.IsolatedFetchRequest(
                partitions=self.partitions,
                max_wait_ms=self.wait_ms,
                min_bytes=self.min_bytes,
                max_bytes=self.max_bytes,
                isolation=self.isolation,
            )
        return m.FetchRequest(
            partitions=self.partitions,
            max_wait_ms=self.wait_ms,
            min_bytes=self.min_bytes,
            max_bytes=self.max_bytes,
        )

    def from_frame(self, response: m.Response) -> list[FetchOutcome]:
        answer = expect(response, m.FetchResponse)
        if len(answer.partitions) != len(self.partitions):
            raise ProtocolError(
                f"the response has {len(answer.partitions)} partitions instead of {len(self.partitions)}"
            )
        outcomes: list[FetchOutcome] = []
        left = DECODED_BYTES_MAX
        for requested, fetched in zip(self.partitions, answer.partitions, strict=True):
            outcome, size = _outcome(requested, fetched, left, is_first=left == DECODED_BYTES_MAX)
            outcomes.append(outcome)
            left -= size
        return outcomes

    def to_http(self) -> HttpRequest:
        (requested,) = self.partitions
        params = {
            "from": str(requested.offset),
            "max_bytes": str(min(requested.max_bytes, self.max_bytes)),
            # max_bytes is the limit; the broker's default for records is meant for people.
            "limit": "1000000",
        }
        if self.wait_ms:
            params["wait_ms"] = str(self.wait_ms)
            params["min_bytes"] = str(self.min_bytes)
        params |= isolation_params(self.isolation)
        return HttpRequest(
            method="GET",
            path=topic_path(requested.topic, "partitions", str(requested.partition), "records"),
            params=params,
            headers={"Accept": OCTET_STREAM} | ({} if self.topic_id is None else {"Topic-Id": self.topic_id}),
        )

    def from_http(self, answer: HttpAnswer) -> list[FetchOutcome]:
        (requested,) = self.partitions
        decoded = decode_up_to(
            requested.topic, requested.partition, requested.offset, answer.body, bytes_max=DECODED_BYTES_MAX
        )
        # The broker may have looked further than the last batch.
        told = answer.header_int("Next-Offset") if decoded.is_whole else decoded.next_offset
        return [
            FetchedRecords(
                topic=requested.topic,
                partition=requested.partition,
                records=decoded.records,
                next_offset=max(decoded.next_offset, told),
                high_watermark=read_bound(answer, self.isolation),
                log_start_offset=answer.header_int("Log-Start-Offset"),
            )
        ]

    def from_problem(self, error: SteleClientError) -> list[FetchOutcome]:
        return [error]


def _outcome(
    requested: m.FetchPartition, fetched: m.FetchedPartition, bytes_max: int, *, is_first: bool
) -> tuple[FetchOutcome, int]:
    """Return what was fetched of a partition, and its decompressed bytes."""
    if fetched.code is not ErrorCode.NONE:
        return partition_error(fetched), 0
    try:
        decoded = decode_up_to(
            requested.topic,
            requested.partition,
            requested.offset,
            fetched.batches,
            bytes_max=bytes_max,
            at_least_one=is_first,
        )
    except CorruptRecordsError as error:
        return error, 0
    outcome = FetchedRecords(
        topic=requested.topic,
        partition=requested.partition,
        records=decoded.records,
        next_offset=decoded.next_offset,
        high_watermark=fetched.high_watermark,
        log_start_offset=fetched.log_start_offset,
    )
    return outcome, decoded.size


def partition_error(fetched: m.FetchedPartition) -> SteleClientError:
    return error_for(
        fetched.code,
        fetched.message or fetched.code.name,
        log_start_offset=fetched.log_start_offset,
        log_end_offset=fetched.high_watermark,
    )


def isolation_params(isolation: IsolationLevel) -> dict[str, str]:
    """Return the query parameter of an isolation level; none for the default."""
    is_default = isolation is IsolationLevel.READ_COMMITTED
    return {} if is_default else {"isolation": isolation.name.lower()}


def read_bound(answer: HttpAnswer, isolation: IsolationLevel) -> int:
    """Return the offset up to which a fetch over HTTP could read."""
    if isolation is IsolationLevel.READ_COMMITTED and "Last-Stable-Offset" in answer.headers:
        return answer.header_int("Last-Stable-Offset")
    return answer.header_int("High-Watermark")


@dataclass(frozen=True, slots=True)
class DecodedRecords:
    """The records of some batches, and the offset after the last of these.

    ``size`` is what the decoded batches unpack to, in bytes. ``is_whole`` is false if others are left.
    """

    records: list[Record[bytes]]
    next_offset: int
    size: int
    is_whole: bool


def records_of(topic: str, partition: int, offset: int, batches: bytes) -> list[Record[bytes]]:
    """Decode all records from ``offset`` on; the first batch may start before it.

    Raises:
        CorruptRecordsError: a CRC does not match, or records do not parse.
    """
    return decode_up_to(topic, partition, offset, batches, bytes_max=sys.maxsize).records


def decode_up_to(
    topic: str, partition: int, offset: int, batches: bytes, *, bytes_max: int, at_least_one: bool = True
) -> DecodedRecords:
    """Decode records from ``offset`` on, of about ``bytes_max`` decompressed.

    A batch of two kilobytes may unpack to 64 MiB; what is left is fetched again.
    Raises as ``records_of``.
    """
    records: list[Record[bytes]] = []
    position, end, size, next_offset = 0, len(batches), 0, offset
    try:
        while position < end:
            header = check_batch(batches, position)
            position += header.size
            if header.is_control or header.last_offset < offset:
                next_offset = max(next_offset, header.next_offset)
                continue
            if size + plain_size_max(batches, header) > bytes_max and (size or not at_least_one):
                return DecodedRecords(records, next_offset, size, is_whole=False)
            plain = plain_batch(batches, header)
            size += len(plain)
            stamp = header.max_timestamp if header.is_log_append_time else None
            for view in decode_records(plain):
                if view.offset >= offset:
                    records.append(
                        Record(
                            topic,
                            partition,
                            view.offset,
                            view.timestamp if stamp is None else stamp,
                            view.key,
                            view.value,
                            tuple(view.headers) if view.headers else (),
                        )
                    )
            next_offset = max(next_offset, header.next_offset)
    except CorruptBatchError as error:
        raise CorruptRecordsError(
            f"the batches of {topic}-{partition} from offset {offset} are corrupt: {error}; "
            "read them again, and if that does not help run `stele verify` on the broker's data directory"
        ) from error
    return DecodedRecords(records, next_offset, size, is_whole=True)


class ListOffset(Operation[int | None]):
    """Look up an offset by a time in ms or a special value.

    Special values are ``EARLIEST_TIMESTAMP`` and ``LATEST_TIMESTAMP``.

    For a time, it is the offset of the first record at or after it, or None. The latest offset
    is the last stable offset, or the high watermark with READ_UNCOMMITTED.
    """

    is_repeatable = True
    topic: str
    partition: int
    timestamp_ms: int
    isolation: IsolationLevel = IsolationLevel.READ_COMMITTED

    def to_frame(self) -> m.Request:
        fields = self.fields()
        if self.isolation is IsolationLevel.READ_COMMITTED:
            del fields["isolation"]
            return m.ListOffsetsRequest(**fields)
        return m.IsolatedListOffsetsRequest(**fields)

    def from_frame(self, response: m.Response) -> int | None:
        offset = expect(response, m.ListOffsetsResponse).offset
        return None if offset < 0 else offset

    def to_http(self) -> HttpRequest:
        return HttpRequest(
            method="GET",
            path=topic_path(self.topic, "partitions", str(self.partition), "offsets"),
            params={"at": _at(self.timestamp_ms)} | isolation_params(self.isolation),
        )

    def from_http(self, answer: HttpAnswer) -> int | None:
        offset = answer.json()["offset"]
        return None if offset is None or offset < 0 else int(offset)


def _at(timestamp_ms: int) -> str:
    if timestamp_ms == m.EARLIEST_TIMESTAMP:
        return "earliest"
    if timestamp_ms == m.LATEST_TIMESTAMP:
        return "latest"
    seconds, milliseconds = divmod(timestamp_ms, 1000)
    moment = datetime.fromtimestamp(seconds, UTC).replace(microsecond=milliseconds * 1000)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class SimpleConsume(m.ConsumeRequest, Operation[tuple[list[tuple[int, bytes]], int]]):
    """ADR-0009 CONSUME of partition 0; the result is ``([(offset, data)…], next offset)``."""

    is_repeatable = True

    def from_frame(self, response: m.Response) -> tuple[list[tuple[int, bytes]], int]:
        answer = expect(response, m.ConsumeResponse)
        return list(answer.messages), answer.next_offset
