"""Parts of both clients without I/O: arguments → operations, and a cache."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Unpack

from .config import ClientConfig, FilePath, TlsFiles, url_from_environment
from .credentials import LoginOptions, given_credentials
from .errors import ProduceError, SteleClientError
from .operations.fetch import FetchOutcome
from .operations.produce import RecordOutcome
from .records import (
    FetchedRecords,
    Membership,
    NewRecord,
    OutgoingRecord,
    RecordMetadata,
    Timestamp,
    TopicPartition,
    outgoing,
    to_timestamp_ms,
)
from .wire import messages as m
from .wire.isolation_level import IsolationLevel
from .wire.partitioner import partition_for_key

AcksLike = Literal["all", "-1", "1", "0"] | int
At = Literal["earliest", "latest"] | Timestamp
Isolation = Literal["read_committed", "read_uncommitted"]

# Below the default limit of 1 MiB, with room for the batch header.
BATCH_BYTES_MAX = 900 * 1024
# The end of the year 9999, the last that RFC 3339 can name.
_TIME_MS_MAX = 253_402_300_799_999
# The longest time until producers use a partition that was added.
PARTITION_COUNT_MAX_AGE_S = 60.0


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def make_config(
    url: str | None,
    timeout_s: float | None = None,
    connect_timeout_s: float | None = None,
    *,
    ca_file: FilePath | None = None,
    certificate_file: FilePath | None = None,
    key_file: FilePath | None = None,
    **login: Unpack[LoginOptions],
) -> ClientConfig:
    given = {"timeout_s": timeout_s, "connect_timeout_s": connect_timeout_s}
    return ClientConfig(
        url=url_from_environment() if url is None else url,
        tls=TlsFiles(
            ca_file=None if ca_file is None else os.fspath(ca_file),
            certificate_file=None if certificate_file is None else os.fspath(certificate_file),
            key_file=None if key_file is None else os.fspath(key_file),
        ),
        credentials=given_credentials(login),
        **{name: value for name, value in given.items() if value is not None},
    )


def parse_acks(acks: AcksLike) -> int:
    """Return 0, 1 or -1 (all).

    Raises:
        ValueError: ``acks`` has another value.
    """
    match acks:
        case "all" | "-1" | -1:
            return m.ACKS_ALL
        case 1 | "1":
            return 1
        case 0 | "0":
            return 0
        case _:
            raise ValueError(f"acks is {acks!r}; it must be 'all', 1 or 0")


def parse_at(at: At) -> int:
    """Return the ``timestamp_ms`` of a ListOffset request.

    Raises:
        ValueError: neither a name, nor ms since the epoch, nor a datetime with a time zone.
    """
    if at == "earliest":
        return m.EARLIEST_TIMESTAMP
    if at == "latest":
        return m.LATEST_TIMESTAMP
    if isinstance(at, str):
        raise ValueError(
            f"{at!r} is not a position in a log; use 'earliest', 'latest', a datetime or ms since the epoch"
        )
    timestamp_ms = to_timestamp_ms(at)
    if isinstance(at, datetime):
        # As the broker reads a time of a query: negative numbers have meanings of their own.
        return max(0, timestamp_ms)
    if not 0 <= timestamp_ms <= _TIME_MS_MAX:
        raise ValueError(f"{timestamp_ms} is not ms since 1970, up to the year 9999")
    return timestamp_ms


def parse_isolation(isolation: Isolation) -> IsolationLevel:
    """Return the isolation level of a name.

    Raises:
        ValueError: ``isolation`` has another value.
    """
    if isolation not in ("read_committed", "read_uncommitted"):
        raise ValueError(f"isolation is {isolation!r}; it must be read_committed or read_uncommitted")
    return IsolationLevel[isolation.upper()]


class PartitionCounts:
    """A cache of partition counts, each for ``PARTITION_COUNT_MAX_AGE_S``."""

    def __init__(self) -> None:
        self._counts: dict[str, tuple[int, float]] = {}

    def get(self, topic: str) -> int | None:
        count, expires_s = self._counts.get(topic, (0, 0.0))
        return count if expires_s > time.monotonic() else None

    def put(self, topic: str, count: int) -> None:
        self._counts[topic] = (count, time.monotonic() + PARTITION_COUNT_MAX_AGE_S)

    def forget(self, topic: str) -> None:
        self._counts.pop(topic, None)


@dataclass(slots=True)
class Group:
    """Records of a call that form one batch, with their indexes in the call."""

    partition: int | None
    indexes: list[int]
    records: list[OutgoingRecord]
    size: int = 0


def needs_partition_count(records: Sequence[OutgoingRecord], partitions: Sequence[int | None]) -> bool:
    return any(
        partition is None and record.key is not None
        for record, partition in zip(records, partitions, strict=True)
    )


def prepare(
    records: Iterable[NewRecord | bytes | str],
) -> tuple[list[OutgoingRecord], list[int | None]]:
    """Return the records as bytes, and the partition that each names."""
    moment_ms = now_ms()
    given = list(records)
    return (
        [outgoing(record, moment_ms) for record in given],
        [record.partition if isinstance(record, NewRecord) else None for record in given],
    )


def group(
    records: Sequence[OutgoingRecord],
    partitions: Sequence[int | None],
    partition_count: int | None,
) -> list[Group]:
    """Group records into batches by partition, of at most ``BATCH_BYTES_MAX`` bytes.

    A larger record gets a batch of its own. Without ``partition_count``, records that
    name no partition stay together, and the broker chooses the partition.
    """
    open_groups: dict[int | None, Group] = {}
    groups: list[Group] = []
    for index, (record, partition) in enumerate(zip(records, partitions, strict=True)):
        if partition is None and record.key is not None and partition_count is not None:
            partition = partition_for_key(record.key, partition_count)
        size = record.size
        target = open_groups.get(partition)
        if target is None or target.size + size > BATCH_BYTES_MAX:
            target = open_groups[partition] = Group(partition, [], [])
            groups.append(target)
        target.indexes.append(index)
        target.records.append(record)
        target.size += size
    return groups


def conditional_group(records: Sequence[OutgoingRecord], partitions: Sequence[int | None]) -> list[Group]:
    """Return the one group of a conditional append.

    Raises:
        ValueError: the records do not all name the same partition.
    """
    partition, *others = set(partitions)
    if partition is None or others:
        raise ValueError("expected_end is that of one partition; name the same partition in all records")
    return [Group(partition, list(range(len(records))), list(records))]


def collect(
    groups: Sequence[Group], outcomes: Sequence[list[RecordOutcome] | SteleClientError], count: int
) -> list[RecordMetadata]:
    """Return the receipts in the order of the records.

    Raises:
        ProduceError: some records were not accepted.
    """
    results: list[RecordMetadata | None] = [None] * count
    errors: dict[int, SteleClientError] = {}
    for target, outcome in zip(groups, outcomes, strict=True):
        for position, index in enumerate(target.indexes):
            of_record = outcome if isinstance(outcome, SteleClientError) else outcome[position]
            if isinstance(of_record, SteleClientError):
                errors[index] = of_record
            else:
                results[index] = of_record
    if errors:
        raise ProduceError(dict(sorted(errors.items())), results)
    return [result for result in results if result is not None]


def fetched(outcomes: list[FetchOutcome], max_records: int | None) -> FetchedRecords:
    (outcome,) = outcomes
    if isinstance(outcome, SteleClientError):
        raise outcome
    if max_records is not None and len(outcome.records) > max_records:
        del outcome.records[max_records:]
        # The next fetch reads the rest again.
        outcome.next_offset = outcome.records[-1].offset + 1
    return outcome


def ownership(member: Membership, partition: TopicPartition) -> dict[str, Any]:
    """Return what the operations of a partition's owner have in common."""
    return {"member_id": member.member_id, "generation": member.generation, **partition._asdict()}


def topic_settings(
    topic: str, partitions: int | None, configs: Mapping[str, object] | None
) -> dict[str, Any]:
    """Return the arguments of the operations that create and alter a topic.

    Values of configurations become text (True → ``true``); None stays.
    """
    return {
        "topic": topic,
        "partitions": m.DEFAULT_PARTITIONS if partitions is None else partitions,
        "configs": tuple(
            (name, None if value is None else _config_text(value)) for name, value in (configs or {}).items()
        ),
    }


def _config_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
