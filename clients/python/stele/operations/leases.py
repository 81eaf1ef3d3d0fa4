"""Operations that read under leases: poll, ack, nack and extend (ADR-0017)."""

from __future__ import annotations

from ..records import LeasedPartition, Polled, Record
from ..records import SkippedRecords as Skipped
from ..wire import messages as m
from .base import HttpAnswer, HttpRequest, NoResult, Operation, copied, expect, json_request
from .fetch import records_of
from .groups import group_path
from .json_records import AS_BYTES, record_from_json


class Poll(m.PollRequest, Operation[Polled]):
    """A poll; repeatable, because the same ``poll_id`` returns the same lease."""

    is_repeatable = True

    @property
    def wait_s(self) -> float:
        return self.max_wait_ms / 1000

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
        body = self.fields()
        body["from"], body["wait_ms"] = body.pop("start"), body.pop("max_wait_ms")
        if self.max_partitions == m.ANY_NUMBER:
            body["max_partitions"] = None
        del body["group"]
        return json_request("POST", group_path(self.group, "poll"), body, params=AS_BYTES)

    def from_http(self, answer: HttpAnswer) -> Polled:
        document = answer.json()
        return Polled(
            lease=document["lease"],
            expires_at_ms=int(document["expires_at"] or 0),
            records=[record_from_json(str(record["topic"]), record) for record in document["records"]],
            partitions=[LeasedPartition(**partition) for partition in document["partitions"]],
            skipped=[Skipped(**skipped) for skipped in document["skipped"]],
        )


class Ack(m.AckRequest, NoResult):
    is_repeatable = True

    def to_http(self) -> HttpRequest:
        return json_request("POST", group_path(self.group, "ack"), {"lease": self.lease})


class Nack(m.NackRequest, NoResult):
    def to_http(self) -> HttpRequest:
        return json_request("POST", group_path(self.group, "nack"), {"lease": self.lease})


class Extend(m.ExtendRequest, NoResult):
    is_repeatable = True

    def to_http(self) -> HttpRequest:
        body = {"lease": self.lease, "lease_ms": self.lease_ms}
        return json_request("POST", group_path(self.group, "extend"), body)
