"""Operations of a mirror on its copies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..records import TopicPartition
from ..wire import messages as m
from .base import HttpAnswer, HttpRequest, NoResult, Operation, expect, json_request
from .groups import group_path


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A topic of the target; ``configs`` are those in effect."""

    topic_id: bytes
    partitions: int
    configs: dict[str, str]


class DescribeCopy(m.DescribeTopicRequest, Operation[Copy]):
    """Return what a mirror must know of a topic. Over the binary protocol."""

    is_repeatable = True

    def from_frame(self, response: m.Response) -> Copy:
        answer = expect(response, m.DescribeTopicResponse)
        configs = {name: value for name, value in answer.configs if value is not None}
        return Copy(topic_id=bytes(answer.topic_id), partitions=answer.partitions, configs=configs)


class MirrorAppend(m.MirrorAppendRequest, Operation[m.MirrorAppendResponse]):
    """Append batches to a copy. Without batches it returns what the copy has. Over the binary protocol."""

    def from_frame(self, response: m.Response) -> m.MirrorAppendResponse:
        return expect(response, m.MirrorAppendResponse)


class ReadCopy(m.IsolatedFetchRequest, Operation[m.FetchedPartition]):
    """Read batches of a copy as they are stored. Over the binary protocol."""

    is_repeatable = True

    def from_frame(self, response: m.Response) -> m.FetchedPartition:
        (fetched,) = expect(response, m.IsolatedFetchResponse).partitions
        return fetched


class GroupOffsets(Operation[dict[TopicPartition, tuple[int, str]] | None]):
    """Return the committed offsets of a group with their metadata, None of a share group. Over HTTP."""

    is_repeatable = True
    group: str

    def to_http(self) -> HttpRequest:
        return HttpRequest(method="GET", path=group_path(self.group))

    def from_http(self, answer: HttpAnswer) -> dict[TopicPartition, tuple[int, str]] | None:
        document = answer.json()
        if document["type"] == "share":
            return None
        return {
            TopicPartition(one["topic"], one["partition"]): (one["committed"], one["metadata"] or "")
            for one in document["partitions"]
            if one["committed"] is not None
        }


class SetOffsets(NoResult):
    """Commit offsets and their metadata for a group without members. Over HTTP."""

    is_repeatable = True
    group: str
    offsets: Sequence[tuple[TopicPartition, int, str]]

    def to_http(self) -> HttpRequest:
        offsets = [
            {"topic": name.topic, "partition": name.partition, "offset": offset, "metadata": metadata}
            for name, offset, metadata in self.offsets
        ]
        return json_request("PUT", group_path(self.group, "offsets"), {"offsets": offsets})

    def from_http(self, answer: HttpAnswer) -> None:
        return None
