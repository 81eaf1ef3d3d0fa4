"""Operations on records of share groups, over HTTP only (ADR-0045)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from ..records import Record, Redriven, SharePolled
from .base import HttpAnswer, HttpRequest, Operation, json_request
from .groups import group_path
from .json_records import AS_BYTES, record_from_json

Settlement: TypeAlias = Literal["ack", "release", "reject", "renew"]


class SharePoll(Operation[SharePolled]):
    """Take records under a lock; repeatable, because the same lock returns the same records."""

    is_repeatable = True
    group: str
    topics: Sequence[str]
    lock: str
    start: str | None = None
    max_records: int = 100
    max_bytes: int = 1024 * 1024
    wait_ms: int = 0

    @property
    def wait_s(self) -> float:
        return self.wait_ms / 1000

    def to_http(self) -> HttpRequest:
        body = {
            "topics": self.topics,
            "lock": self.lock,
            "from": self.start,
            "max_records": self.max_records,
            "max_bytes": self.max_bytes,
            "wait_ms": self.wait_ms,
        }
        return json_request("POST", group_path(self.group, "share", "poll"), body, params=AS_BYTES)

    def from_http(self, answer: HttpAnswer) -> SharePolled:
        document = answer.json()
        return SharePolled(
            lock=document["lock"],
            expires_in_ms=int(document["expires_in_ms"] or 0),
            records=[
                (record_from_json(str(record["topic"]), record), int(record["deliveries"]))
                for record in document["records"]
            ],
        )


class Settle(Operation[int]):
    """Acknowledge, release, reject or renew records of a lock.

    Returns for how long they are locked, in ms.

    Not repeatable: a lock does not tell whether it held a record before.
    """

    group: str
    kind: Settlement
    lock: str
    records: Sequence[Record[bytes]]

    def to_http(self) -> HttpRequest:
        body = {
            "lock": self.lock,
            "records": [
                {"topic": record.topic, "partition": record.partition, "offset": record.offset}
                for record in self.records
            ],
        }
        return json_request("POST", group_path(self.group, "share", self.kind), body)

    def from_http(self, answer: HttpAnswer) -> int:
        return int(answer.json().get("expires_in_ms", 0))


class Redrive(Operation[Redriven]):
    """Append the records of dead letters to the partitions that they came from.

    Not repeatable: the answer that was lost had counted letters that are done.
    """

    group: str
    max_records: int = 1000

    def to_http(self) -> HttpRequest:
        return json_request(
            "POST", group_path(self.group, "share", "redrive"), {"max_records": self.max_records}
        )

    def from_http(self, answer: HttpAnswer) -> Redriven:
        return msgspec.convert(answer.json(), Redriven)
