"""What a handler receives with a request, and what it may return."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from stele.wire.error_codes import ErrorCode

from ....broker.broker import Broker
from ....broker.topics import Topic
from ....errors import SteleError, UnknownTopicId
from ....groups.coordinator import GroupCoordinator
from ...deferred_response import DeferredResponse
from ...errors import error_code_of
from ..fetch_sessions import FetchSessionCache

# The protocol allows strings of 32 KiB; clients log messages as one line.
_MESSAGE_CHARACTERS_MAX = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaListener:
    """What all connections share: the broker, the groups, the sessions, the advertised address."""

    broker: Broker
    groups: GroupCoordinator
    host: str
    port: int
    fetch_sessions: FetchSessionCache


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The listener, the version and the client of one request."""

    listener: KafkaListener
    version: int
    client_id: str
    client_host: str

    @property
    def broker(self) -> Broker:
        return self.listener.broker

    @property
    def groups(self) -> GroupCoordinator:
        return self.listener.groups


@dataclass(frozen=True, slots=True)
class NoResponse:
    """The outcome of a produce with acks=0: no response. A failure closes the connection instead."""

    failure: SteleError | None = None


# A response message, a response that is due later, or none.
Answer = Any | Coroutine[Any, Any, Any] | DeferredResponse[Any] | NoResponse


def describe_error(error: SteleError) -> tuple[ErrorCode, str]:
    """Return the code and the message of ``error``, for responses that carry both."""
    return error_code_of(error), str(error)[:_MESSAGE_CHARACTERS_MAX]


def find_topic(context: Context, name: str | None, topic_id: bytes) -> Topic:
    """Find a topic by name, or by id if ``name`` is None.

    Raises:
        UnknownTopic, UnknownTopicId: there is none.
        InvalidTopicName: no topic can have this name.
    """
    if name is not None:
        return context.broker.readable_topic(name)
    topic = context.broker.topic_by_id(topic_id)
    if topic is None:
        raise UnknownTopicId(topic_id.hex())
    return topic
