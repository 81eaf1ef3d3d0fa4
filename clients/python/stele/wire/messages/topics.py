"""Messages for metadata and administration of topics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from ..error_codes import ErrorCode
from ..schema import NO_UUID, Bool, Int32, Label, Uuid, frozen_message
from .base import Code, Request, Response, message
from .frame_types import MessageType

DEFAULT_PARTITIONS = -1

# A name and its value. In ALTER_TOPIC_REQUEST a value of None goes back to the default.
Config = tuple[Annotated[str, Label("config name")], Annotated[str | None, Label("config value")]]


# ── metadata ──


@message(MessageType.METADATA_REQUEST)
class MetadataRequest(Request):
    """Request metadata; ``topics`` None means all topics."""

    auto_create: Bool = False
    topics: Sequence[str] | None


@frozen_message
class BrokerEndpoint:
    """The address of a broker's binary listener."""

    id: Annotated[Int32, Label("broker id")]
    host: str
    port: Int32


@frozen_message
class PartitionMetadata:
    """A partition; ``leader`` is a broker id."""

    partition: Int32
    leader: Int32
    leader_epoch: Int32


@frozen_message
class TopicMetadata:
    """A topic; ``code`` is 0, or the error with which it cannot be described."""

    code: Code = ErrorCode.NONE
    topic: str
    topic_id: Uuid = NO_UUID
    partitions: Sequence[PartitionMetadata] = ()


@message(MessageType.METADATA_RESPONSE)
class MetadataResponse(Response):
    cluster_id: str
    brokers: Sequence[BrokerEndpoint]
    topics: Sequence[TopicMetadata]


# ── other listeners ──


@message(MessageType.HTTP_LISTENER_REQUEST)
class HttpListenerRequest(Request):
    """Ask where the HTTP listener is."""


@message(MessageType.HTTP_LISTENER_RESPONSE)
class HttpListenerResponse(Response):
    """The port on the host of this listener, 0 if there is none, and its TLS."""

    port: Int32
    has_tls: Bool


# ── changing topics ──


@frozen_message
class _TopicRequest(Request):
    topic: str


@frozen_message
class _TopicSettingRequest(Request):
    topic: str
    partitions: Int32 = DEFAULT_PARTITIONS
    configs: Sequence[Config] = ()


@frozen_message
class _TopicDescription(Response):
    topic_id: Uuid
    partitions: Int32
    configs: Sequence[Config] = ()


@message(MessageType.CREATE_TOPIC_REQUEST)
class CreateTopicRequest(_TopicSettingRequest):
    """Create a topic; ``partitions`` -1 is the broker's default."""


@message(MessageType.CREATE_TOPIC_RESPONSE)
class CreateTopicResponse(_TopicDescription):
    """The topic as created; ``configs`` are those set on it."""


@message(MessageType.DELETE_TOPIC_REQUEST)
class DeleteTopicRequest(_TopicRequest):
    """Delete a topic and its records."""


@message(MessageType.DELETE_TOPIC_RESPONSE)
class DeleteTopicResponse(Response):
    """The topic was deleted."""


@message(MessageType.DESCRIBE_TOPIC_REQUEST)
class DescribeTopicRequest(_TopicRequest):
    """Request the id, partitions and configurations of a topic."""


@message(MessageType.DESCRIBE_TOPIC_RESPONSE)
class DescribeTopicResponse(_TopicDescription):
    """The topic; ``configs`` are those in effect, including defaults."""


@message(MessageType.ALTER_TOPIC_REQUEST)
class AlterTopicRequest(_TopicSettingRequest):
    """Change a topic.

    Names not listed keep their value; a value of None goes back to the default.
    ``partitions`` may only grow; -1 leaves them as they are.
    """


@message(MessageType.ALTER_TOPIC_RESPONSE)
class AlterTopicResponse(_TopicDescription):
    """The topic as altered; ``configs`` are those in effect."""
