"""Operations of a member of a consumer group: membership, ownership and commits (ADR-0017)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ..records import Membership, TopicPartition
from ..wire import messages as m
from .base import HttpAnswer, HttpRequest, NoResult, Operation, expect, json_request, segment


def group_path(group: str, *parts: str) -> str:
    """Return ``/v1/groups/{group}/…`` with all names quoted."""
    return "/".join(("/v1/groups", *map(segment, (group, *parts))))


def _partition_path(group: str, partition: TopicPartition, part: str) -> str:
    return group_path(group, "partitions", partition.topic, str(partition.partition), part)


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
    frame = m.JoinGroupRequest
    group: str
    topics: Sequence[str]
    session_timeout_ms: int
    member_id: str = ""
    client_id: str = ""

    def from_frame(self, response: m.Response) -> Membership:
        return _membership(expect(response, m.JoinGroupResponse))

    def to_http(self) -> HttpRequest:
        body = {**self.fields(), "client_id": self.client_id or "http"}
        return json_request("POST", group_path(body.pop("group"), "members"), body)

    def from_http(self, answer: HttpAnswer) -> Membership:
        return _membership_from_json(answer.json())


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat(Operation[Membership]):
    is_repeatable = True
    frame = m.HeartbeatRequest
    group: str
    member_id: str
    generation: int

    def from_frame(self, response: m.Response) -> Membership:
        return _membership(expect(response, m.HeartbeatResponse))

    def to_http(self) -> HttpRequest:
        path = group_path(self.group, "members", self.member_id, "heartbeat")
        return json_request("POST", path, {"generation": self.generation})

    def from_http(self, answer: HttpAnswer) -> Membership:
        return _membership_from_json(answer.json())


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroup(NoResult):
    frame = m.LeaveGroupRequest
    group: str
    member_id: str

    def to_http(self) -> HttpRequest:
        return HttpRequest(method="DELETE", path=group_path(self.group, "members", self.member_id))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ownership(NoResult):
    method: ClassVar[str]
    group: str
    member_id: str
    generation: int
    partition: TopicPartition

    def to_http(self) -> HttpRequest:
        body = {"member_id": self.member_id, "generation": self.generation}
        return json_request(self.method, _partition_path(self.group, self.partition, "owner"), body)


class Claim(_Ownership):
    is_repeatable = True
    frame = m.ClaimRequest
    method = "PUT"


class Release(_Ownership):
    frame = m.ReleaseRequest
    method = "DELETE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit(NoResult):
    is_repeatable = True
    frame = m.CommitRequest
    group: str
    member_id: str
    generation: int
    partition: TopicPartition
    offset: int
    metadata: str = ""

    def to_http(self) -> HttpRequest:
        body = {name: getattr(self, name) for name in ("member_id", "generation", "offset", "metadata")}
        return json_request("PUT", _partition_path(self.group, self.partition, "offset"), body)


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed(Operation[int | None]):
    is_repeatable = True
    frame = m.CommittedRequest
    group: str
    partition: TopicPartition

    def from_frame(self, response: m.Response) -> int | None:
        offset = expect(response, m.CommittedResponse).offset
        return None if offset == m.UNKNOWN_OFFSET else offset

    def to_http(self) -> HttpRequest:
        return HttpRequest(method="GET", path=_partition_path(self.group, self.partition, "offset"))

    def from_http(self, answer: HttpAnswer) -> int | None:
        offset = answer.json()["offset"]
        return None if offset is None else int(offset)
