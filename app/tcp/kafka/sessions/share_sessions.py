"""Share sessions, which remember what a share group's member reads (KIP-932).

This is a state machine without I/O. A session belongs to a member and to a connection: a request with
epoch 0 begins it, those with 1, 2, … name only what changed, and -1 ends it. When the connection ends,
so does the session, and the records that its member holds become available again.

In a cluster a client has a session with each broker that it reads from, and all of them are at the coordinator
of its group. So a session is also that of the broker which has the connection (ADR-0057).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from stele.wire.error_codes import ErrorCode

from .fetch_sessions import FINAL_EPOCH, NEW_SESSION_EPOCH, next_epoch

# Kafka's value.
SHARE_SESSIONS_MAX = 2_000


class SharedPartition(NamedTuple):
    """A partition by the id of its topic (16 bytes)."""

    topic_id: bytes
    number: int


class ClientConnection(NamedTuple):
    """A connection of a client, by its number at the broker that has it.

    ``broker`` is the incarnation of that broker; empty if it is this one.
    """

    broker: str = ""
    number: int = 0


NO_CONNECTION = ClientConnection()


@dataclass(slots=True, eq=False)
class ShareSession:
    """What one member reads over one connection.

    ``epoch`` is that of its next request.
    """

    group: str
    member_id: str
    connection: ClientConnection
    epoch: int = 1
    # A dict for its order: after each request the first partition goes to the end.
    partitions: dict[SharedPartition, None] = field(default_factory=dict[SharedPartition, None])

    def add(self, partition: SharedPartition) -> None:
        self.partitions[partition] = None

    def forget(self, partition: SharedPartition) -> None:
        self.partitions.pop(partition, None)

    def in_turn(self) -> Sequence[SharedPartition]:
        """Return the partitions; each time another one comes first, so that none starves."""
        partitions = list(self.partitions)
        if partitions:
            del self.partitions[partitions[0]]
            self.partitions[partitions[0]] = None
        return partitions


class ShareSessions:
    """The share sessions of one listener, by group, member and broker."""

    def __init__(self, sessions_max: int = SHARE_SESSIONS_MAX) -> None:
        self._sessions_max = sessions_max
        self._count = 0
        # By group and member, then by broker.
        self._sessions: dict[tuple[str, str], dict[str, ShareSession]] = {}
        self._by_connection: dict[ClientConnection, set[ShareSession]] = {}

    def __len__(self) -> int:
        return self._count

    def begin(self, group: str, member_id: str, connection: ClientConnection) -> ShareSession | ErrorCode:
        """Begin a session for epoch 0.

        It replaces the member's earlier one with that broker.
        """
        self._drop(self._of(group, member_id, connection.broker))
        if self._count >= self._sessions_max:
            return ErrorCode.SHARE_SESSION_LIMIT_REACHED
        session = ShareSession(group, member_id, connection)
        self._count += 1
        self._sessions.setdefault((group, member_id), {})[connection.broker] = session
        self._by_connection.setdefault(connection, set()).add(session)
        return session

    def take(self, group: str, member_id: str, epoch: int, *, broker: str = "") -> ShareSession | ErrorCode:
        """Return the session of a request with an epoch other than 0; epoch -1 ends it."""
        session = self._of(group, member_id, broker)
        if session is None:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        if epoch == FINAL_EPOCH:
            self._drop(session)
            return session
        if epoch == NEW_SESSION_EPOCH or epoch != session.epoch:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        session.epoch = next_epoch(session.epoch)
        return session

    def is_gone(self, session: ShareSession) -> bool:
        """Return whether a session has ended, and no other has taken its place."""
        return self._of(session.group, session.member_id, session.connection.broker) is None

    def is_over(self, session: ShareSession) -> bool:
        """Return whether a session has ended, also if the member has begun another since."""
        return self._of(session.group, session.member_id, session.connection.broker) is not session

    def has_member(self, group: str, member_id: str) -> bool:
        """Return whether a member has a session."""
        return (group, member_id) in self._sessions

    def lost(self, connection: ClientConnection) -> list[ShareSession]:
        """End the sessions of a connection that has ended, and return them."""
        ended = list(self._by_connection.get(connection, ()))
        for session in ended:
            self._drop(session)
        return ended

    def keep_brokers(self, live: Collection[str]) -> list[ShareSession]:
        """End the sessions of connections to other brokers than ``live``, and return them."""
        gone = [one for one in self._by_connection if one.broker and one.broker not in live]
        return [session for connection in gone for session in self.lost(connection)]

    def keep_groups(self, is_served: Callable[[str], bool]) -> None:
        """Forget the sessions of groups that are not served here."""
        groups = {group for group, _ in self._sessions}
        gone = {group for group in groups if not is_served(group)}
        for sessions in [found for (group, _), found in self._sessions.items() if group in gone]:
            for session in tuple(sessions.values()):
                self._drop(session)

    def _of(self, group: str, member_id: str, broker: str) -> ShareSession | None:
        return self._sessions.get((group, member_id), {}).get(broker)

    def _drop(self, session: ShareSession | None) -> None:
        if session is None:
            return
        self._count -= 1
        of_member = self._sessions[session.group, session.member_id]
        del of_member[session.connection.broker]
        if not of_member:
            del self._sessions[session.group, session.member_id]
        of_connection = self._by_connection[session.connection]
        of_connection.discard(session)
        if not of_connection:
            del self._by_connection[session.connection]
