"""Administration of consumer groups, over HTTP only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..records import GroupDescription, GroupMember, PartitionLag, TopicPartition
from .base import HttpAnswer, HttpRequest, Operation
from .groups import NoResult, group_path, json_request, partitions_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ListGroups(Operation[tuple[list[tuple[str, str]], str | None]]):
    """List a page of groups: ``([(group, state)…], next_after)``."""

    is_repeatable = True
    after: str = ""

    def to_http(self) -> HttpRequest:
        return HttpRequest(method="GET", path="/v1/groups", params={"after": self.after})

    def from_http(self, answer: HttpAnswer) -> tuple[list[tuple[str, str]], str | None]:
        document = answer.json()
        return [(group["group"], group["state"]) for group in document["groups"]], document["next_after"]


def _lag(document: Mapping[str, Any]) -> PartitionLag:
    return PartitionLag(
        topic=document["topic"],
        partition=document["partition"],
        committed=document["committed"],
        high_watermark=document["high_watermark"],
        lag=document["lag"],
        member_id=document["member_id"],
        in_flight=document.get("in_flight"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeGroup(Operation[GroupDescription]):
    is_repeatable = True
    group: str

    def to_http(self) -> HttpRequest:
        return HttpRequest(method="GET", path=group_path(self.group))

    def from_http(self, answer: HttpAnswer) -> GroupDescription:
        document = answer.json()
        return GroupDescription(
            group=document["group"],
            state=document["state"],
            generation=document["generation"],
            protocol=document["protocol"],
            lag=document["lag"],
            # Older brokers have one type of groups, and no epochs.
            type=document.get("type", "classic"),
            members=[
                GroupMember(
                    member_id=member["member_id"],
                    client_id=member["client_id"],
                    client_host=member["client_host"],
                    assigned=partitions_of(member["assignment"]),
                    owned=partitions_of(member["owned"]),
                    epoch=member.get("epoch"),
                )
                for member in document["members"]
            ],
            partitions=[_lag(partition) for partition in document["partitions"]],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GetGroupConfigs(Operation[dict[str, str]]):
    """Return all configurations of a group that are in effect."""

    is_repeatable = True
    group: str

    def to_http(self) -> HttpRequest:
        return HttpRequest(method="GET", path=group_path(self.group, "configs"))

    def from_http(self, answer: HttpAnswer) -> dict[str, str]:
        return dict(answer.json()["effective_configs"])


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigureGroup(Operation[dict[str, str]]):
    """Set configurations of a group, None resets one; return all that are in effect."""

    is_repeatable = True
    group: str
    configs: Mapping[str, str | None]

    def to_http(self) -> HttpRequest:
        return json_request("PATCH", group_path(self.group, "configs"), {"configs": dict(self.configs)})

    def from_http(self, answer: HttpAnswer) -> dict[str, str]:
        return dict(answer.json()["effective_configs"])


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroup(NoResult):
    group: str

    def to_http(self) -> HttpRequest:
        return HttpRequest(method="DELETE", path=group_path(self.group))


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetOffsets(Operation[list[tuple[TopicPartition, int | None, int, int]]]):
    """Reset offsets: ``[(partition, committed before, after, lag)…]``."""

    is_repeatable = True
    group: str
    to: str
    topics: Sequence[str] | None = None
    dry_run: bool = False

    def to_http(self) -> HttpRequest:
        request = json_request(
            "PUT", group_path(self.group, "offsets"), {"to": self.to, "topics": self.topics}
        )
        return HttpRequest(
            method=request.method,
            path=request.path,
            params={"dry_run": str(self.dry_run).lower()},
            headers=request.headers,
            content=request.content,
        )

    def from_http(self, answer: HttpAnswer) -> list[tuple[TopicPartition, int | None, int, int]]:
        return [
            (
                TopicPartition(reset["topic"], reset["partition"]),
                reset["before"],
                reset["after"],
                reset["lag"],
            )
            for reset in answer.json()["offsets"]
        ]
