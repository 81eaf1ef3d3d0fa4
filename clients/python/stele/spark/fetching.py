"""Calls of driver and executors to the broker: topics, offsets and stored batches.

All calls are repeatable, and retried for ``brokerTimeoutMs`` while the broker is down.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self, TypeVar, cast

from ..calls import parse_isolation
from ..client import Client
from ..credentials import read_secret
from ..errors import OffsetOutOfRangeError, SteleClientError, UnknownTopicError
from ..operations.base import Operation
from ..operations.fetch import ListOffset
from ..operations.raw_fetch import RawBatches, RawFetch
from ..records import TopicPartition
from ..transport.base import retry_pause_s
from ..wire import messages as m
from ..wire.error_codes import ErrorCode
from ..wire.record_batch import iter_headers
from .offsets import OffsetRange, Offsets
from .options import Assign, Connection, Selection, Subscribe

logger: logging.Logger = logging.getLogger("stele.spark")
# What the names of topics begin with that programs keep for themselves.
INTERNAL = "__"
R = TypeVar("R")


class DataLossError(SteleClientError):
    """Records that a query had not read yet are gone."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code=ErrorCode.OFFSET_OUT_OF_RANGE)


class Broker:
    """A client with the retries that the options set; use it in a ``with`` block."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._isolation = parse_isolation(connection.isolation)
        key_file = connection.api_key_file
        self.client: Client = Client(
            connection.url,
            user=connection.user,
            password_file=connection.password_file,
            api_key=None if key_file is None else read_secret(key_file),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def patiently(self, call: Callable[[], R]) -> R:
        """Execute ``call``, which must be repeatable; retry while the broker is down.

        Raises:
            SteleClientError: it is not retriable, or ``brokerTimeoutMs`` has passed.
        """
        give_up_s = time.monotonic() + self._connection.broker_timeout_ms / 1000
        failures = 0
        while True:
            try:
                return call()
            except SteleClientError as error:
                pause_s = retry_pause_s(failures)
                if not error.retriable or time.monotonic() + pause_s >= give_up_s:
                    raise
                if not failures:
                    logger.warning("retrying until the broker answers: %s", error)
            failures += 1
            time.sleep(pause_s)

    def call(self, operation: Operation[R]) -> R:
        """Execute a repeatable operation. Raises as ``patiently``."""
        return self.patiently(lambda: self.client.call(operation))

    def partitions(self, selection: Selection, *, skip_missing: bool = False) -> list[TopicPartition]:
        """Return the partitions that ``selection`` matches now, in order.

        Raises:
            UnknownTopicError: a named topic or partition does not exist; with
                ``skip_missing`` it is left out instead.
        """
        counts = {t.topic: t.partitions for t in self.patiently(self.client.topics)}
        match selection:
            case Subscribe():
                wanted = [TopicPartition(t, p) for t in selection.topics for p in range(counts.get(t, 1))]
            case Assign():
                wanted = [TopicPartition(*partition) for partition in selection.partitions]
            case _:
                matches = re.compile(selection.pattern).fullmatch
                # A pattern such as .* means the topics of users; internal ones can be named.
                topics = [topic for topic in counts if matches(topic) and not topic.startswith(INTERNAL)]
                wanted = [TopicPartition(topic, p) for topic in topics for p in range(counts[topic])]
        missing = sorted(name for name in wanted if name.partition >= counts.get(name.topic, 0))
        if missing and not skip_missing:
            name = missing[0]
            if name.topic in counts:
                raise UnknownTopicError(
                    f"there is no {name}: {name.topic} has {counts[name.topic]} partitions, from 0 on; "
                    "correct the option assign"
                )
            raise UnknownTopicError(
                f"{self._connection.url} has no topic {name.topic}; create it before the query starts "
                f"(it has {', '.join(sorted(counts)[:10]) or 'none at all'})"
            )
        return sorted(set(wanted) - set(missing))

    def offsets_at(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Return the offset at a time in ms per partition, in one round trip.

        The time may be ``EARLIEST`` or ``LATEST``. None if no record is that late.

        Raises:
            UnknownTopicError: a partition does not exist.
        """
        found = self.outcomes_at(times_ms)
        for outcome in found.values():
            if isinstance(outcome, SteleClientError):
                raise outcome
        return cast("dict[TopicPartition, int | None]", found)

    def outcomes_at(
        self, times_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | UnknownTopicError | None]:
        """Return the same with the error of each partition that does not exist."""
        operations = [
            ListOffset(
                topic=name.topic,
                partition=name.partition,
                timestamp_ms=timestamp_ms,
                isolation=self._isolation,
            )
            for name, timestamp_ms in times_ms.items()
        ]
        timeout_s = self.client.config.timeout_s

        def ask() -> list[int | UnknownTopicError | None]:
            offsets: list[int | UnknownTopicError | None] = []
            for outcome in self.client.transport.call_all(operations, timeout_s=timeout_s):
                if isinstance(outcome, SteleClientError) and not isinstance(outcome, UnknownTopicError):
                    raise outcome
                offsets.append(outcome)
            return offsets

        return dict(zip(times_ms, self.patiently(ask), strict=True))

    def latest(self, names: Iterable[TopicPartition]) -> Offsets:
        """Return the last stable offsets, or the log end offsets with read_uncommitted."""
        ends = self.offsets_at(dict.fromkeys(names, m.LATEST_TIMESTAMP))
        return {name: offset or 0 for name, offset in ends.items()}

    def earliest(self, names: Iterable[TopicPartition]) -> Offsets:
        """Return the log start offsets of the partitions that exist."""
        starts = self.outcomes_at(dict.fromkeys(names, m.EARLIEST_TIMESTAMP))
        return {n: offset or 0 for n, offset in starts.items() if not isinstance(offset, UnknownTopicError)}

    def log_start(self, topic: str, partition: int) -> int:
        """Return the log start offset; 0 if the partition does not exist."""
        name = TopicPartition(topic, partition)
        return self.earliest([name]).get(name, 0)

    def read(
        self, wanted: OffsetRange, *, fetch_bytes: int, fail_on_data_loss: bool
    ) -> Iterator[tuple[bytes, int]]:
        """Yield ``(batches, offset to read from)`` of ``wanted``, one fetch ahead.

        Batches without records stand for those that the isolation level hides, so a range without
        a visible record is no loss.

        Raises:
            DataLossError: records are gone and ``fail_on_data_loss`` is set. Otherwise a
                warning is logged, and the rest is read.
        """
        with ThreadPoolExecutor(1, thread_name_prefix="stele-fetch") as ahead:

            def fetch(offset: int) -> Future[RawBatches]:
                operation = RawFetch(
                    topic=wanted.topic,
                    partition=wanted.partition,
                    offset=offset,
                    max_bytes=fetch_bytes,
                    isolation=self._isolation,
                )
                return ahead.submit(self.call, operation)

            offset = wanted.start
            under_way = fetch(offset)
            while True:
                lost_to, fetched = offset, None
                try:
                    fetched = under_way.result()
                except OffsetOutOfRangeError as error:
                    low = error.log_start_offset
                    lost_to = min(max(low, offset), wanted.end) if low > offset else wanted.end
                except UnknownTopicError:
                    lost_to = wanted.end
                if fetched is not None and not fetched.batches:
                    # The log ended here once the range was planned, and has become shorter.
                    lost_to = wanted.end
                if lost_to > offset:
                    report_loss(wanted.topic, wanted.partition, offset, lost_to, fail=fail_on_data_loss)
                    offset = lost_to
                    if offset >= wanted.end:
                        return
                    under_way = fetch(offset)
                    continue
                assert fetched is not None
                following = max(header.next_offset for header in iter_headers(fetched.batches))
                if following < wanted.end:
                    under_way = fetch(following)
                yield fetched.batches, offset
                offset = following
                if offset >= wanted.end:
                    return


def report_loss(topic: str, partition: int, start: int, end: int, *, fail: bool) -> None:
    """Report lost records with ``start`` <= offset < ``end``, or raise DataLossError."""
    what = (
        f"{end - start} records of {topic}-{partition} are lost to this query: offsets {start} to {end - 1} are "
        "no longer in the log. Retention deleted them, or the topic was deleted or truncated"
    )
    if fail:
        raise DataLossError(
            f"{what}. Make retention.ms or retention.bytes of the topic larger; to continue without these "
            "records set failOnDataLoss=false"
        )
    logger.warning("%s. The query continues without them, because failOnDataLoss is false", what)


def report_cut(topic: str, partition: int, offset: int, latest: int | None, *, fail: bool) -> None:
    """Report a log that is gone or ends at ``latest``, before the query's ``offset``."""
    state = "no longer exists" if latest is None else f"ends at offset {latest} now"
    what = (
        f"{topic}-{partition} {state}, but this query had read it up to offset {offset}: the topic was deleted "
        "or recreated, or lost its last records in a power failure"
    )
    if fail:
        raise DataLossError(
            f"{what}. Start the query with a new checkpoint; to continue with what is there set failOnDataLoss=false"
        )
    logger.warning("%s. The query continues with what is there, because failOnDataLoss is false", what)
