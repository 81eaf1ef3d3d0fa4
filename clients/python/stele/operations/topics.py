"""Operations on topics and on the broker as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec

from ..config import http_url_of, shown_url
from ..errors import UnknownTopicError, UnsupportedOperationError, error_for
from ..records import BrokerAddress, ClusterMetadata, PartitionCompaction, TopicDescription
from ..wire import messages as m
from ..wire.error_codes import ErrorCode
from .base import HttpAnswer, HttpRequest, NoResult, Operation, expect, json_request, topic_path
from .json_records import NDJSON


def _description(
    topic: str, response: m.CreateTopicResponse | m.DescribeTopicResponse | m.AlterTopicResponse
):
    return TopicDescription(
        topic=topic,
        partitions=response.partitions,
        configs={name: value for name, value in response.configs if value is not None},
    )


def _description_from_json(
    document: Mapping[str, Any], configs: str = "effective_configs"
) -> TopicDescription:
    values: Mapping[str, Any] = document.get(configs) or {}
    return TopicDescription(
        topic=str(document["name"]),
        partitions=int(document["partition_count"]),
        configs={name: str(value) for name, value in values.items() if value is not None},
        compaction=msgspec.convert(
            [state for state in document.get("partitions") or () if state.get("cleaner") is not None],
            list[PartitionCompaction],
        ),
    )


class Metadata(m.MetadataRequest, Operation[ClusterMetadata]):
    """The cluster's id and its brokers."""

    is_repeatable = True
    topics: Sequence[str] | None = ()

    def from_frame(self, response: m.Response) -> ClusterMetadata:
        answer = expect(response, m.MetadataResponse)
        return ClusterMetadata(
            cluster_id=answer.cluster_id,
            brokers=[BrokerAddress(id=b.id, host=b.host, port=b.port) for b in answer.brokers],
        )

    def to_http(self) -> HttpRequest:
        return HttpRequest(method="GET", path="/v1/cluster")

    def from_http(self, answer: HttpAnswer) -> ClusterMetadata:
        document = answer.json()
        return ClusterMetadata(
            cluster_id=str(document["cluster_id"]),
            brokers=[
                BrokerAddress(id=int(b["id"]), host=str(b["host"]), port=int(b.get("binary_port", 0)))
                for b in document["brokers"]
            ],
        )


class PartitionCount(Operation[int]):
    """Get the number of partitions of a topic.

    With ``auto_create`` the broker creates an unknown topic if its settings allow.
    Over HTTP a GET changes nothing; use ``ProduceNothing`` to create the topic.
    """

    is_repeatable = True
    topic: str
    auto_create: bool = False

    def to_frame(self) -> m.Request:
        return m.MetadataRequest(topics=(self.topic,), auto_create=self.auto_create)

    def from_frame(self, response: m.Response) -> int:
        for topic in expect(response, m.MetadataResponse).topics:
            if topic.topic == self.topic:
                if topic.code is not ErrorCode.NONE:
                    raise error_for(topic.code, _why_no_topic(self.topic, topic.code))
                return len(topic.partitions)
        raise UnknownTopicError(f"topic {self.topic!r} does not exist; create it first")

    def to_http(self) -> HttpRequest:
        return HttpRequest(method="GET", path=topic_path(self.topic))

    def from_http(self, answer: HttpAnswer) -> int:
        return _description_from_json(answer.json()).partitions


class TopicId(Operation[str | None]):
    """Get the id of a topic, which another topic of the same name does not have.

    None for internal topics, and for those that the client may not describe.
    """

    is_repeatable = True
    topic: str

    def to_frame(self) -> m.Request:
        return m.MetadataRequest(topics=(self.topic,))

    def from_frame(self, response: m.Response) -> str | None:
        (topic,) = expect(response, m.MetadataResponse).topics
        if topic.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise error_for(topic.code, _why_no_topic(self.topic, topic.code))
        return None if topic.code is not ErrorCode.NONE else str(UUID(bytes=topic.topic_id))

    def to_http(self) -> HttpRequest:
        return HttpRequest(method="GET", path=topic_path(self.topic))

    def from_http(self, answer: HttpAnswer) -> str | None:
        return str(answer.json()["topic_id"])


def _why_no_topic(topic: str, code: ErrorCode) -> str:
    if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return f"topic {topic!r} does not exist; create it first"
    return f"topic {topic!r} cannot be used: {code.name}"


class ProduceNothing(NoResult):
    """Produce no records over HTTP, which creates an unknown topic if settings allow."""

    is_repeatable = True
    topic: str

    def to_http(self) -> HttpRequest:
        return HttpRequest(
            method="POST", path=topic_path(self.topic, "records"), headers={"Content-Type": NDJSON}
        )


class ListTopics(Operation[tuple[list[TopicDescription], str | None]]):
    """List a page of topics without configurations, and ``after`` for the next page."""

    is_repeatable = True
    after: str = ""

    def to_frame(self) -> m.Request:
        return m.MetadataRequest(topics=None)

    def from_frame(self, response: m.Response) -> tuple[list[TopicDescription], str | None]:
        answer = expect(response, m.MetadataResponse)
        return [TopicDescription(topic=t.topic, partitions=len(t.partitions)) for t in answer.topics], None

    def to_http(self) -> HttpRequest:
        params = {"after": self.after} if self.after else {}
        return HttpRequest(method="GET", path="/v1/topics", params=params)

    def from_http(self, answer: HttpAnswer) -> tuple[list[TopicDescription], str | None]:
        document = answer.json()
        return [_description_from_json(topic) for topic in document["topics"]], document.get("next_after")


def _settings_request(method: str, settings: m.CreateTopicRequest | m.AlterTopicRequest) -> HttpRequest:
    body: dict[str, Any] = {"configs": dict(settings.configs)} if settings.configs else {}
    if settings.partitions != m.DEFAULT_PARTITIONS:
        body["partitions"] = settings.partitions
    return json_request(method, topic_path(settings.topic), body)


class CreateTopic(m.CreateTopicRequest, Operation[TopicDescription]):
    """Create a topic; ``partitions`` None is the broker's default.

    The result has only the configurations that were set.
    """

    def from_frame(self, response: m.Response) -> TopicDescription:
        return _description(self.topic, expect(response, m.CreateTopicResponse))

    def to_http(self) -> HttpRequest:
        return _settings_request("PUT", self)

    def from_http(self, answer: HttpAnswer) -> TopicDescription:
        if answer.status == 200:
            # PUT is idempotent, create is not; both transports must behave the same.
            raise error_for(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {self.topic!r} exists already")
        return _description_from_json(answer.json(), "configs")


class DescribeTopic(m.DescribeTopicRequest, Operation[TopicDescription]):
    is_repeatable = True

    def from_frame(self, response: m.Response) -> TopicDescription:
        return _description(self.topic, expect(response, m.DescribeTopicResponse))

    def to_http(self) -> HttpRequest:
        return HttpRequest(method="GET", path=topic_path(self.topic))

    def from_http(self, answer: HttpAnswer) -> TopicDescription:
        return _description_from_json(answer.json())


class AlterTopic(m.AlterTopicRequest, Operation[TopicDescription]):
    """Change a topic; a configuration of None is reset to its default."""

    is_repeatable = True

    def from_frame(self, response: m.Response) -> TopicDescription:
        return _description(self.topic, expect(response, m.AlterTopicResponse))

    def to_http(self) -> HttpRequest:
        return _settings_request("PATCH", self)

    def from_http(self, answer: HttpAnswer) -> TopicDescription:
        return _description_from_json(answer.json())


class DeleteTopic(m.DeleteTopicRequest, NoResult):
    def to_http(self) -> HttpRequest:
        return HttpRequest(method="DELETE", path=topic_path(self.topic))


class Flush(NoResult):
    """Sync everything appended before, in ``topic`` or in all topics."""

    is_repeatable = True
    topic: str | None = None

    def to_frame(self) -> m.Request:
        return m.FlushRequest() if self.topic is None else m.FlushTopicRequest(topic=self.topic)

    def to_http(self) -> HttpRequest:
        path = "/v1/flush" if self.topic is None else topic_path(self.topic, "flush")
        return HttpRequest(method="POST", path=path)


class HttpListener(m.HttpListenerRequest, Operation[m.HttpListenerResponse]):
    """Ask where the HTTP listener of the broker is; over the binary protocol."""

    is_repeatable = True

    def from_frame(self, response: m.Response) -> m.HttpListenerResponse:
        return expect(response, m.HttpListenerResponse)


def http_listener_url(url: str, listener: m.HttpListenerResponse) -> str:
    """Return the URL of the HTTP listener of the one broker that ``url``, of the binary protocol, names.

    Raises ``UnsupportedOperationError``: there is none, or one without TLS, unlike the URL.
    """
    if not listener.port:
        raise UnsupportedOperationError(f"the broker at {shown_url(url)} has no HTTP listener")
    if url.startswith("stele+tls://") and not listener.has_tls:
        raise UnsupportedOperationError(
            f"the HTTP listener of {shown_url(url)} is without TLS, unlike the URL"
        )
    return http_url_of(url, listener.port, has_tls=listener.has_tls)


class RegistryListener(Operation[int | None]):
    """Ask for the port of the schema registry of the broker; None if it has none. Over HTTP."""

    is_repeatable = True

    def to_http(self) -> HttpRequest:
        return HttpRequest(method="GET", path="/v1/overview")

    def from_http(self, answer: HttpAnswer) -> int | None:
        ports = {listener["name"]: listener["port"] for listener in answer.json()["listeners"]}
        return ports.get("registry")


class Ping(m.MetadataRequest, NoResult):
    """The smallest request, to check that the broker answers."""

    is_repeatable = True
    topics: Sequence[str] | None = ()

    def to_http(self) -> HttpRequest:
        return HttpRequest(method="GET", path="/healthz")
