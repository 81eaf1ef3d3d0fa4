"""Operations on consumer groups: membership and ownership, polls with leases, lag and resets (ADR-0017)."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from ..records import (
    GroupDescription,
    GroupMember,
    LeasedPartition,
    Membership,
    PartitionLag,
    Polled,
    Record,
    TopicPartition,
)
from ..records import SkippedRecords as Skipped
from ..wire import messages as m
from .base import JSON, HttpAnswer, HttpRequest, Operation, expect, segment
from .fetch import records_of

_encode = msgspec.json.encode


def _path(group: str, *parts: str) -> str:
    return "/".join(("/v1/groups", *map(segment, (group, *parts))))


def _post(method: str, path: str, body: object) -> HttpRequest:
    return HttpRequest(method=method, path=path, headers={"Content-Type": JSON}, content=_encode(body))


# ── members ──


def _membership(answer: m.JoinGroupResponse | m.HeartbeatResponse) -> Membership:
    return Membership(
        member_id=answer.member_id,
        generation=answer.generation,
        assigned=[TopicPartition(topic, p) for topic, partitions in answer.assignment for p in partitions],
        is_rebalancing=answer.is_rebalancing,
    )


def _membership_from_json(document: Mapping[str, Any]) -> Membership:
    return Membership(
        member_id=str(document["member_id"]),
        generation=int(document["generation"]),
        assigned=_partitions(document["assignment"]),
        is_rebalancing=bool(document["rebalancing"]),
    )


def _partitions(assignment: Sequence[Mapping[str, Any]]) -> list[TopicPartition]:
    return [TopicPartition(str(one["topic"]), int(p)) for one in assignment for p in one["partitions"]]


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroup(Operation[Membership]):
    group: str
    topics: Sequence[str]
    session_timeout_ms: int
    member_id: str = ""
    client_id: str = ""

    def to_frame(self) -> m.Request:
        return m.JoinGroupRequest(
            group=self.group,
            topics=self.topics,
            session_timeout_ms=self.session_timeout_ms,
            member_id=self.member_id,
            client_id=self.client_id,
        )

    def from_frame(self, response: m.Response) -> Membership:
        return _membership(expect(response, m.JoinGroupResponse))

    def to_http(self) -> HttpRequest:
        body = {
            "topics": self.topics,
            "session_timeout_ms": self.session_timeout_ms,
            "member_id": self.member_id,
            "client_id": self.client_id or "http",
        }
        return _post("POST", _path(self.group, "members"), body)

    def from_http(self, answer: HttpAnswer) -> Membership:
        return _membership_from_json(answer.json())


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat(Operation[Membership]):
    is_repeatable = True
    group: str
    member_id: str
    generation: int

    def to_frame(self) -> m.Request:
        return m.HeartbeatRequest(group=self.group, member_id=self.member_id, generation=self.generation)

    def from_frame(self, response: m.Response) -> Membership:
        return _membership(expect(response, m.HeartbeatResponse))

    def to_http(self) -> HttpRequest:
        path = _path(self.group, "members", self.member_id, "heartbeat")
        return _post("POST", path, {"generation": self.generation})

    def from_http(self, answer: HttpAnswer) -> Membership:
        return _membership_from_json(answer.json())


class _Nothing(Operation[None]):
    """Its answer has no fields."""

    __slots__ = ()

    def from_frame(self, response: m.Response) -> None:
        return None

    def from_http(self, answer: HttpAnswer) -> None:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroup(_Nothing):
    group: str
    member_id: str

    def to_frame(self) -> m.Request:
        return m.LeaveGroupRequest(group=self.group, member_id=self.member_id)

    def to_http(self) -> HttpRequest:
        return HttpRequest(method="DELETE", path=_path(self.group, "members", self.member_id))


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim(_Nothing):
    is_repeatable = True
    group: str
    member_id: str
    generation: int
    partition: TopicPartition

    def to_frame(self) -> m.Request:
        return m.ClaimRequest(
            group=self.group,
            member_id=self.member_id,
            generation=self.generation,
            topic=self.partition.topic,
            partition=self.partition.partition,
        )

    def to_http(self) -> HttpRequest:
        return _post("PUT", _owner_path(self.group, self.partition), _who(self.member_id, self.generation))


@dataclass(frozen=True, slots=True, kw_only=True)
class Release(_Nothing):
    group: str
    member_id: str
    generation: int
    partition: TopicPartition

    def to_frame(self) -> m.Request:
        return m.ReleaseRequest(
            group=self.group,
            member_id=self.member_id,
            generation=self.generation,
            topic=self.partition.topic,
            partition=self.partition.partition,
        )

    def to_http(self) -> HttpRequest:
        return _post("DELETE", _owner_path(self.group, self.partition), _who(self.member_id, self.generation))


def _who(member_id: str, generation: int) -> dict[str, Any]:
    return {"member_id": member_id, "generation": generation}


def _owner_path(group: str, partition: TopicPartition) -> str:
    return _path(group, "partitions", partition.topic, str(partition.partition), "owner")


def _offset_path(group: str, partition: TopicPartition) -> str:
    return _path(group, "partitions", partition.topic, str(partition.partition), "offset")


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit(_Nothing):
    is_repeatable = True
    group: str
    member_id: str
    generation: int
    partition: TopicPartition
    offset: int
    metadata: str = ""

    def to_frame(self) -> m.Request:
        return m.CommitRequest(
            group=self.group,
            member_id=self.member_id,
            generation=self.generation,
            topic=self.partition.topic,
            partition=self.partition.partition,
            offset=self.offset,
            metadata=self.metadata,
        )

    def to_http(self) -> HttpRequest:
        body = {**_who(self.member_id, self.generation), "offset": self.offset, "metadata": self.metadata}
        return _post("PUT", _offset_path(self.group, self.partition), body)


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed(Operation[int | None]):
    is_repeatable = True
    group: str
    partition: TopicPartition

    def to_frame(self) -> m.Request:
        topic, partition = self.partition
        return m.CommittedRequest(group=self.group, topic=topic, partition=partition)

    def from_frame(self, response: m.Response) -> int | None:
        offset = expect(response, m.CommittedResponse).offset
        return None if offset == m.UNKNOWN_OFFSET else offset

    def to_http(self) -> HttpRequest:
        return HttpRequest(method="GET", path=_offset_path(self.group, self.partition))

    def from_http(self, answer: HttpAnswer) -> int | None:
        offset = answer.json()["offset"]
        return None if offset is None else int(offset)


# ── polls ──


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll(Operation[Polled]):
    """``poll_id`` makes it repeatable: the same again is answered with the same lease."""

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
            found = records_of(part.topic, part.partition, part.offset, part.batches)
            records += [record for record in found if record.offset < part.next_offset]
        return Polled(
            lease=answer.lease,
            expires_at_ms=answer.expires_at_ms,
            records=records,
            partitions=[
                LeasedPartition(
                    topic=part.topic,
                    partition=part.partition,
                    offset=part.offset,
                    next_offset=part.next_offset,
                    deliveries=part.deliveries,
                )
                for part in answer.partitions
            ],
            skipped=[
                Skipped(
                    topic=one.topic, partition=one.partition, offset=one.offset, next_offset=one.next_offset
                )
                for one in answer.skipped
            ],
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
        return _post("POST", _path(self.group, "poll"), body)

    def from_http(self, answer: HttpAnswer) -> Polled:
        document = answer.json()
        return Polled(
            lease=document["lease"],
            expires_at_ms=int(document["expires_at"] or 0),
            records=[_record(one) for one in document["records"]],
            partitions=[LeasedPartition(**one) for one in document["partitions"]],
            skipped=[Skipped(**one) for one in document["skipped"]],
        )


def _record(document: Mapping[str, Any]) -> Record[bytes]:
    return Record(
        str(document["topic"]),
        int(document["partition"]),
        int(document["offset"]),
        int(document["timestamp"]),
        _bytes(document, "key"),
        _bytes(document, "value"),
        tuple((str(header["key"]), _bytes(header, "value")) for header in document["headers"]),
    )


def _bytes(document: Mapping[str, Any], name: str) -> bytes | None:
    encoded = document.get(f"{name}_b64")
    if encoded is not None:
        return b64decode(encoded)
    text = document[name]
    return None if text is None else str(text).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ack(_Nothing):
    is_repeatable = True
    group: str
    lease: str

    def to_frame(self) -> m.Request:
        return m.AckRequest(group=self.group, lease=self.lease)

    def to_http(self) -> HttpRequest:
        return _post("POST", _path(self.group, "ack"), {"lease": self.lease})


@dataclass(frozen=True, slots=True, kw_only=True)
class Nack(_Nothing):
    group: str
    lease: str

    def to_frame(self) -> m.Request:
        return m.NackRequest(group=self.group, lease=self.lease)

    def to_http(self) -> HttpRequest:
        return _post("POST", _path(self.group, "nack"), {"lease": self.lease})


@dataclass(frozen=True, slots=True, kw_only=True)
class Extend(_Nothing):
    is_repeatable = True
    group: str
    lease: str
    lease_ms: int

    def to_frame(self) -> m.Request:
        return m.ExtendRequest(group=self.group, lease=self.lease, lease_ms=self.lease_ms)

    def to_http(self) -> HttpRequest:
        return _post("POST", _path(self.group, "extend"), {"lease": self.lease, "lease_ms": self.lease_ms})


# ── looking, over HTTP only ──


@dataclass(frozen=True, slots=True, kw_only=True)
class ListGroups(Operation[tuple[list[tuple[str, str]], str | None]]):
    """``([(group, state)…], next_after)``."""

    is_repeatable = True
    after: str = ""

    def to_http(self) -> HttpRequest:
        return HttpRequest(method="GET", path="/v1/groups", params={"after": self.after})

    def from_http(self, answer: HttpAnswer) -> tuple[list[tuple[str, str]], str | None]:
        document = answer.json()
        return [(one["group"], one["state"]) for one in document["groups"]], document["next_after"]


def _lag(document: Mapping[str, Any]) -> PartitionLag:
    return PartitionLag(
        topic=document["topic"],
        partition=document["partition"],
        committed=document["committed"],
        high_watermark=document["high_watermark"],
        lag=document["lag"],
        member_id=document["member_id"],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeGroup(Operation[GroupDescription]):
    is_repeatable = True
    group: str

    def to_http(self) -> HttpRequest:
        return HttpRequest(method="GET", path=_path(self.group))

    def from_http(self, answer: HttpAnswer) -> GroupDescription:
        document = answer.json()
        return GroupDescription(
            group=document["group"],
            state=document["state"],
            generation=document["generation"],
            protocol=document["protocol"],
            lag=document["lag"],
            members=[
                GroupMember(
                    member_id=one["member_id"],
                    client_id=one["client_id"],
                    client_host=one["client_host"],
                    assigned=_partitions(one["assignment"]),
                    owned=_partitions(one["owned"]),
                )
                for one in document["members"]
            ],
            partitions=[_lag(one) for one in document["partitions"]],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroup(_Nothing):
    group: str

    def to_http(self) -> HttpRequest:
        return HttpRequest(method="DELETE", path=_path(self.group))


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetOffsets(Operation[list[tuple[TopicPartition, int | None, int, int]]]):
    """``[(partition, committed before, after, lag)…]``"""

    is_repeatable = True
    group: str
    to: str
    topics: Sequence[str] | None = None
    dry_run: bool = False

    def to_http(self) -> HttpRequest:
        request = _post("PUT", _path(self.group, "offsets"), {"to": self.to, "topics": self.topics})
        return HttpRequest(
            method=request.method,
            path=request.path,
            params={"dry_run": str(self.dry_run).lower()},
            headers=request.headers,
            content=request.content,
        )

    def from_http(self, answer: HttpAnswer) -> list[tuple[TopicPartition, int | None, int, int]]:
        return [
            (TopicPartition(one["topic"], one["partition"]), one["before"], one["after"], one["lag"])
            for one in answer.json()["offsets"]
        ]
