"""Administration of consumer groups, over HTTP only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from ..records import GroupDescription, GroupMember, PartitionLag, TopicPartition
from .base import HttpAnswer, HttpRequest, NoResult, Operation, json_request
from .groups import group_path, partitions_of


class ListGroups(Operation[tuple[list[tuple[str, str]], str | None]]):
    """List a page of groups: ``([(group, state)…], next_after)``."""

    is_repeatable = True
    after: str = ""

    def to_http(self) -> HttpRequest:
        return HttpRequest(method="GET", path="/v1/groups", params={"after": self.after})

    def from_http(self, answer: HttpAnswer) -> tuple[list[tuple[str, str]], str | None]:
        document = answer.json()
        return [(group["group"], group["state"]) for group in document["groups"]], document["next_after"]


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
            partitions=msgspec.convert(document["partitions"], list[PartitionLag]),
        )


class _GroupConfigs(Operation[dict[str, str]]):
    """An operation that returns all configurations of a group that are in effect."""

    is_repeatable = True
    group: str

    def from_http(self, answer: HttpAnswer) -> dict[str, str]:
        return dict(answer.json()["effective_configs"])


class GetGroupConfigs(_GroupConfigs):
    def to_http(self) -> HttpRequest:
        return HttpRequest(method="GET", path=group_path(self.group, "configs"))


class ConfigureGroup(_GroupConfigs):
    """Set configurations of a group; None resets one."""

    configs: Mapping[str, str | None]

    def to_http(self) -> HttpRequest:
        return json_request("PATCH", group_path(self.group, "configs"), {"configs": dict(self.configs)})


class DeleteGroup(NoResult):
    group: str

    def to_http(self) -> HttpRequest:
        return HttpRequest(method="DELETE", path=group_path(self.group))


class ResetOffsets(Operation[list[tuple[TopicPartition, int | None, int, int]]]):
    """Reset offsets: ``[(partition, committed before, after, lag)…]``."""

    is_repeatable = True
    group: str
    to: str
    topics: Sequence[str] | None = None
    dry_run: bool = False

    def to_http(self) -> HttpRequest:
        params = {"dry_run": str(self.dry_run).lower()}
        body = {"to": self.to, "topics": self.topics}
        return json_request("PUT", group_path(self.group, "offsets"), body, params=params)

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
