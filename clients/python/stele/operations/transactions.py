"""Operations of transactions, over HTTP only (ADR-0034)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from ..records import OutgoingRecord, RecordMetadata, TopicPartition
from ..wire.messages import Durability
from .base import HttpAnswer, HttpRequest, NoResult, Operation, json_request, segment
from .json_records import FROM_BYTES, topic_record_as_json


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerToken:
    """The fencing token that a producer sends with each request; a later producer makes it invalid."""

    producer_id: int
    producer_epoch: int

    @property
    def headers(self) -> dict[str, str]:
        return {"Producer-Id": str(self.producer_id), "Producer-Epoch": str(self.producer_epoch)}


def _path(transactional_id: str, step: str) -> str:
    return f"/v1/transactions/{segment(transactional_id)}/{step}"


def _token(answer: HttpAnswer) -> ProducerToken:
    return msgspec.convert(answer.json(), ProducerToken)


class BeginTransaction(Operation[ProducerToken]):
    """Begin with a transactional id; repeatable, because the last one to begin is in force."""

    is_repeatable = True
    transactional_id: str
    timeout_ms: int

    def to_http(self) -> HttpRequest:
        return HttpRequest(
            method="POST",
            path=_path(self.transactional_id, "begin"),
            params={"timeout_ms": str(self.timeout_ms)},
        )

    def from_http(self, answer: HttpAnswer) -> ProducerToken:
        return _token(answer)


class ProduceInTransaction(Operation[list[RecordMetadata]]):
    """Append records to a topic.

    Not repeatable: after a lost answer, abort the transaction.
    """

    transactional_id: str
    token: ProducerToken
    topic: str
    records: Sequence[OutgoingRecord]
    partitions: Sequence[int | None]

    def to_http(self) -> HttpRequest:
        records: list[dict[str, Any]] = [
            topic_record_as_json(self.topic, record, partition)
            for record, partition in zip(self.records, self.partitions, strict=True)
        ]
        path = _path(self.transactional_id, "records")
        return json_request("POST", path, {"records": records}, params=FROM_BYTES, headers=self.token.headers)

    def from_http(self, answer: HttpAnswer) -> list[RecordMetadata]:
        return [
            RecordMetadata(
                str(record["topic"]),
                int(record["partition"]),
                int(record["offset"]),
                int(record["timestamp"]),
                Durability.APPENDED,
            )
            for record in answer.json()["records"]
        ]


class SettleLease(NoResult):
    """Acknowledge a lease with the transaction; a repeated request has the same effect."""

    is_repeatable = True
    transactional_id: str
    token: ProducerToken
    group: str
    lease: str

    def to_http(self) -> HttpRequest:
        body = {"leases": [{"group": self.group, "lease": self.lease}]}
        path = _path(self.transactional_id, "settle")
        return json_request("POST", path, body, headers=self.token.headers)


class SettleOffset(NoResult):
    """Commit an offset with the transaction; a repeated request has the same effect."""

    is_repeatable = True
    transactional_id: str
    token: ProducerToken
    group: str
    partition: TopicPartition
    offset: int

    def to_http(self) -> HttpRequest:
        offset = {"group": self.group, **self.partition._asdict(), "offset": self.offset}
        path = _path(self.transactional_id, "settle")
        return json_request("POST", path, {"offsets": [offset]}, headers=self.token.headers)


class EndTransaction(Operation[ProducerToken]):
    """Commit or abort; the broker answers a repeated request as the first."""

    is_repeatable = True
    transactional_id: str
    token: ProducerToken
    is_commit: bool

    def to_http(self) -> HttpRequest:
        return HttpRequest(
            method="POST",
            path=_path(self.transactional_id, "commit" if self.is_commit else "abort"),
            headers=self.token.headers,
        )

    def from_http(self, answer: HttpAnswer) -> ProducerToken:
        return _token(answer)
