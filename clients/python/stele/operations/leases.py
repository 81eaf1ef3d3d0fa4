"""Operations that read under leases: poll, ack, nack and extend (ADR-0017)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ..records import LeasedPartition, Polled, Record
from ..records import SkippedRecords as Skipped
from ..wire import messages as m
from .base import HttpAnswer, HttpRequest, NoResult, Operation, copied, expect, json_request
from .fetch import records_of
from .groups import group_path
from .json_records import record_from_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll(Operation[Polled]):
    """A poll; repeatable, because the same ``poll_id`` returns the same lease."""

    is_repeatable = True
    group: str
    topics: Sequence[str]
    poll_id: str
    start: str = "earliest"
    max_records: int = 500
    max_bytes: int = 1024 * 1024
    max_partitions: int | None = None
    wait_ms: int = 0
    lease_ms: int = 30_000

    @property
    def wait_s(self) -> float:
        return self.wait_ms / 1000

    def to_frame(self) -> m.Request:
        return m.PollRequest(
            group=self.group,
            topics=self.topics,
            poll_id=self.poll_id,
            start=self.start,
            max_records=self.max_records,
            max_bytes=self.max_bytes,
            max_partitions=m.ANY_NUMBER if self.max_partitions is None else self.max_partitions,
            max_wait_ms=self.wait_ms,
            lease_ms=self.lease_ms,
        )

    def from_frame(self, response: m.Response) -> Polled:
        answer = expect(response, m.PollResponse)
        records: list[Record[bytes]] = []
        for part in answer.partitions:
            decoded = records_of(part.topic, part.partition, part.offset, part.batches)
            records += [record for record in decoded if record.offset < part.next_offset]
        return Polled(
            lease=answer.lease,
            expires_at_ms=answer.expires_at_ms,
            records=records,
            partitions=[copied(LeasedPartition, part) for part in answer.partitions],
            skipped=[copied(Skipped, skipped) for skipped in answer.skipped],
        )

    def to_http(self) -> HttpRequest:
        body = {
            "topics": self.topics,
            "poll_id": self.poll_id,
            "from": self.start,
            "max_records": self.max_records,
            "max_bytes": self.max_bytes,
            "max_partitions": self.max_partitions,
            "wait_ms": self.wait_ms,
            "lease_ms": self.lease_ms,
        }
        return json_request("POST", group_path(self.group, "poll"), body)

    def from_http(self, answer: HttpAnswer) -> Polled:
        document = answer.json()
        return Polled(
            lease=document["lease"],
            expires_at_ms=int(document["expires_at"] or 0),
            records=[record_from_json(str(record["topic"]), record) for record in document["records"]],
            partitions=[LeasedPartition(**partition) for partition in document["partitions"]],
            skipped=[Skipped(**skipped) for skipped in document["skipped"]],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _LeaseStep(NoResult):
    step: ClassVar[str]
    group: str
    lease: str

    def to_http(self) -> HttpRequest:
        body = self.fields()
        return json_request("POST", group_path(body.pop("group"), self.step), body)


class Ack(_LeaseStep):
    is_repeatable = True
    frame = m.AckRequest
    step = "ack"


class Nack(_LeaseStep):
    frame = m.NackRequest
    step = "nack"


@dataclass(frozen=True, slots=True, kw_only=True)
class Extend(_LeaseStep):
    is_repeatable = True
    frame = m.ExtendRequest
    step = "extend"
    lease_ms: int
