"""Operations of a member of a consumer group: membership, ownership and commits (ADR-0017)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from ..records import Membership, TopicPartition
from ..wire import messages as m
from .base import JSON, HttpAnswer, HttpRequest, Operation, expect, segment

_encode = msgspec.json.encode


def group_path(group: str, *parts: str) -> str:
    """Return ``/v1/groups/{group}/…`` with all names quoted."""
    return "/".join(("/v1/groups", *map(segment, (group, *parts))))


def json_request(method: str, path: str, body: object) -> HttpRequest:
    """Return a request with ``body`` as JSON."""
    return HttpRequest(method=method, path=path, headers={"Content-Type": JSON}, content=_encode(body))


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
        assigned=partitions_of(document["assignment"]),
        is_rebalancing=bool(document["rebalancing"]),
    )


def partitions_of(assignment: Sequence[Mapping[str, Any]]) -> list[TopicPartition]:
    """Return the partitions of an assignment in its JSON form."""
    return [TopicPartition(str(part["topic"]), int(p)) for part in assignment for p in part["partitions"]]


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
        return json_request("POST", group_path(self.group, "members"), body)

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
        path = group_path(self.group, "members", self.member_id, "heartbeat")
        return json_request("POST", path, {"generation": self.generation})

    def from_http(self, answer: HttpAnswer) -> Membership:
        return _membership_from_json(answer.json())


class NoResult(Operation[None]):
    """An operation whose response has no fields."""

    __slots__ = ()

    def from_frame(self, response: m.Response) -> None:
        return None

    def from_http(self, answer: HttpAnswer) -> None:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroup(NoResult):
    group: str
    member_id: str

    def to_frame(self) -> m.Request:
        return m.LeaveGroupRequest(group=self.group, member_id=self.member_id)

    def to_http(self) -> HttpRequest:
        return HttpRequest(method="DELETE", path=group_path(self.group, "members", self.member_id))


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim(NoResult):
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
        return json_request(
            "PUT", _owner_path(self.group, self.partition), _member(self.member_id, self.generation)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Release(NoResult):
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
        return json_request(
            "DELETE", _owner_path(self.group, self.partition), _member(self.member_id, self.generation)
        )


def _member(member_id: str, generation: int) -> dict[str, Any]:
    return {"member_id": member_id, "generation": generation}


def _owner_path(group: str, partition: TopicPartition) -> str:
    return group_path(group, "partitions", partition.topic, str(partition.partition), "owner")


def _offset_path(group: str, partition: TopicPartition) -> str:
    return group_path(group, "partitions", partition.topic, str(partition.partition), "offset")


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit(NoResult):
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
        body = {**_member(self.member_id, self.generation), "offset": self.offset, "metadata": self.metadata}
        return json_request("PUT", _offset_path(self.group, self.partition), body)


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
