"""Operations of a member of a consumer group: membership, ownership and commits (ADR-0017)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..records import Membership, TopicPartition
from ..wire import messages as m
from .base import HttpAnswer, HttpRequest, NoResult, Operation, expect, json_request, segment


def group_path(group: str, *parts: str) -> str:
    """Return ``/v1/groups/{group}/…`` with all names quoted."""
    return "/".join(("/v1/groups", *map(segment, (group, *parts))))


def _partition_path(group: str, topic: str, partition: int, part: str) -> str:
    return group_path(group, "partitions", topic, str(partition), part)


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


class JoinGroup(m.JoinGroupRequest, Operation[Membership]):
    def from_frame(self, response: m.Response) -> Membership:
        return _membership(expect(response, m.JoinGroupResponse))

    def to_http(self) -> HttpRequest:
        body = {**self.fields(), "client_id": self.client_id or "http"}
        return json_request("POST", group_path(body.pop("group"), "members"), body)

    def from_http(self, answer: HttpAnswer) -> Membership:
        return _membership_from_json(answer.json())


class Heartbeat(m.HeartbeatRequest, Operation[Membership]):
    is_repeatable = True

    def from_frame(self, response: m.Response) -> Membership:
        return _membership(expect(response, m.HeartbeatResponse))

    def to_http(self) -> HttpRequest:
        path = group_path(self.group, "members", self.member_id, "heartbeat")
        return json_request("POST", path, {"generation": self.generation})

    def from_http(self, answer: HttpAnswer) -> Membership:
        return _membership_from_json(answer.json())


class LeaveGroup(m.LeaveGroupRequest, NoResult):
    def to_http(self) -> HttpRequest:
        return HttpRequest(method="DELETE", path=group_path(self.group, "members", self.member_id))


class Claim(m.ClaimRequest, NoResult):
    is_repeatable = True

    def to_http(self) -> HttpRequest:
        return _owner_request("PUT", self)


class Release(m.ReleaseRequest, NoResult):
    def to_http(self) -> HttpRequest:
        return _owner_request("DELETE", self)


def _owner_request(method: str, owner: m.ClaimRequest | m.ReleaseRequest) -> HttpRequest:
    path = _partition_path(owner.group, owner.topic, owner.partition, "owner")
    return json_request(method, path, {"member_id": owner.member_id, "generation": owner.generation})


class Commit(m.CommitRequest, NoResult):
    is_repeatable = True

    def to_http(self) -> HttpRequest:
        path = _partition_path(self.group, self.topic, self.partition, "offset")
        body = {name: getattr(self, name) for name in ("member_id", "generation", "offset", "metadata")}
        return json_request("PUT", path, body)


class Committed(m.CommittedRequest, Operation[int | None]):
    is_repeatable = True

    def from_frame(self, response: m.Response) -> int | None:
        offset = expect(response, m.CommittedResponse).offset
        return None if offset == m.UNKNOWN_OFFSET else offset

    def to_http(self) -> HttpRequest:
        path = _partition_path(self.group, self.topic, self.partition, "offset")
        return HttpRequest(method="GET", path=path)

    def from_http(self, answer: HttpAnswer) -> int | None:
        offset = answer.json()["offset"]
        return None if offset is None else int(offset)
