"""What a handler receives with a request, and what it may return."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, cast
from uuid import UUID

from stele.wire.error_codes import ErrorCode

from ...broker.broker import Broker
from ...broker.quotas.limits import QuotaKey
from ...broker.quotas.machine import QuotaClient
from ...broker.topics import Topic
from ...cluster.consumer_group_store import OwnedPartition
from ...errors import BrokerClosing, SteleError, UnknownTopicId
from ...groups.coordinator import GroupCoordinator
from ...groups.services import GroupServices
from ...security.authorizer import Access
from ...security.policy import ListenerSecurity
from ...security.principal import ANONYMOUS, Principal
from ...transactions.interface import TransactionService
from ..deferred_response import DeferredResponse
from ..errors import error_code_of
from .frame_forwarding import FrameForwarding
from .sessions.fetch_sessions import FetchSessionCache
from .sessions.idle_answers import IdleAnswers, Room
from .sessions.share_sessions import NO_CONNECTION, ClientConnection, ShareSession, ShareSessions

# The protocol allows strings of 32 KiB; clients log messages as one line.
MESSAGE_CHARACTERS_MAX = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaListener:
    """What all connections share.

    The broker and its coordinators, the sessions, the advertised address.
    """

    broker: Broker
    groups: GroupServices
    transactions: TransactionService
    host: str
    port: int
    fetch_sessions: FetchSessionCache
    # For answers that connections keep.
    idle_answers: Room = field(default_factory=Room)
    share_sessions: ShareSessions = field(default_factory=ShareSessions)
    security: ListenerSecurity = field(default_factory=lambda: ListenerSecurity(listener="kafka"))
    # None: this broker has all groups.
    forwarding: FrameForwarding | None = None

    def give_back(self, sessions: Iterable[ShareSession]) -> None:
        """Make available again what members hold by sessions that have ended.

        A member that has other sessions keeps the records of the partitions that it reads by these.
        """
        for session in sessions:
            partitions = None
            if self.share_sessions.has_member(session.group, session.member_id):
                partitions = [
                    OwnedPartition(UUID(bytes=one.topic_id), one.number) for one in session.partitions
                ]
            shares = self.groups.of(session.group).coordinator.shares
            shares.release_member(session.group, session.member_id, partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The listener, the version and the client of one request.

    ``is_long``: it has so many elements that no loop over them fits into one turn of the event loop.
    ``connection`` is where the client is connected: at another broker if that has forwarded the request.
    """

    listener: KafkaListener
    version: int
    client_id: str
    client_host: str
    peer: str = "?"
    principal: Principal = ANONYMOUS
    is_encrypted: bool = False
    # None: access rules are not checked.
    access: Access | None = None
    connection: ClientConnection = NO_CONNECTION
    # Those of the client's connection, if it is one of this broker.
    idle_answers: IdleAnswers | None = None
    is_long: bool = False

    @property
    def may_carry_secrets(self) -> bool:
        """Whether the request may set a password.

        Nobody else could read it, or a setting allows it.
        """
        return self.listener.security.may_carry_secrets(self.client_host, is_encrypted=self.is_encrypted)

    @property
    def broker(self) -> Broker:
        return self.listener.broker

    def consume_wait_ms(self) -> int:
        """Return how long the client has to wait before it may read again, by its quota.

        0 for a forwarded request: the broker that the client is connected to applies its quotas.
        """
        quotas = self.broker.quotas
        if not quotas.is_active or self.connection.broker:
            return 0
        return quotas.wait_ms(QuotaKey.CONSUME, QuotaClient(self.principal.name, self.client_id))

    def coordinator(self, group: str) -> GroupCoordinator:
        """Return the coordinator of a group.

        Its calls raise ``NotCoordinator`` if another broker has the group.
        """
        return self.listener.groups.of(group).coordinator

    @property
    def transactions(self) -> TransactionService:
        return self.listener.transactions


@dataclass(frozen=True, slots=True)
class NoResponse:
    """The outcome of a produce with acks=0: no response.

    A failure closes the connection instead.
    """

    failure: SteleError | None = None


# A response message, a response that is due later, or none.
Answer = Any | Coroutine[Any, Any, Any] | DeferredResponse[Any] | NoResponse


async def awaited(answer: Answer) -> Any:
    """Return the outcome of what a handler returned, unless that is due to a future."""
    return await cast("Coroutine[Any, Any, Any]", answer) if isinstance(answer, Coroutine) else answer


def describe_error(error: SteleError) -> tuple[ErrorCode, str]:
    """Return the code and the message of ``error``, for responses that carry both."""
    code = error_code_unless_closing(error, ErrorCode.NOT_CONTROLLER)
    return code, str(error)[:MESSAGE_CHARACTERS_MAX]


def error_code_unless_closing(error: SteleError, closing: ErrorCode) -> ErrorCode:
    """Return the code of ``error``, or ``closing`` if the broker shuts down.

    At BROKER_NOT_AVAILABLE clients give up. ``closing`` is the code of the API after which they ask another broker.
    """
    return closing if isinstance(error, BrokerClosing) else error_code_of(error)


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
