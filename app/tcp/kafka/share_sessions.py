"""Share sessions, which remember what a share group's member reads (KIP-932).

This is a state machine without I/O. A session belongs to a member and to a connection: a request with
epoch 0 begins it, those with 1, 2, … name only what changed, and -1 ends it. When the connection ends,
so does the session, and the records that its member holds become available again.
"""

from __future__ import annotations

from collections.abc import Sequence
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


@dataclass(slots=True, eq=False)
class ShareSession:
    """What one member reads.

    ``epoch`` is that of its next request; ``connection`` the number of its connection.
    """

    group: str
    member_id: str
    connection: int
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
    """The share sessions of one listener, by group and member."""

    def __init__(self, sessions_max: int = SHARE_SESSIONS_MAX) -> None:
        self._sessions_max = sessions_max
        self._sessions: dict[tuple[str, str], ShareSession] = {}
        self._by_connection: dict[int, set[ShareSession]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, group: str, member_id: str, connection: int) -> ShareSession | ErrorCode:
        """Begin a session for epoch 0, which replaces the member's earlier one."""
        self._drop(self._sessions.get((group, member_id)))
        if len(self._sessions) >= self._sessions_max:
            return ErrorCode.SHARE_SESSION_LIMIT_REACHED
        session = ShareSession(group, member_id, connection)
        self._sessions[group, member_id] = session
        self._by_connection.setdefault(connection, set()).add(session)
        return session

    def take(self, group: str, member_id: str, epoch: int) -> ShareSession | ErrorCode:
        """Return the session of a request with an epoch other than 0; epoch -1 ends it."""
        session = self._sessions.get((group, member_id))
        if session is None:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        if epoch == FINAL_EPOCH:
            self._drop(session)
            return session
        if epoch == NEW_SESSION_EPOCH or epoch != session.epoch:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        session.epoch = next_epoch(session.epoch)
        return session

    def lost(self, connection: int) -> list[ShareSession]:
        """End the sessions of a connection that has ended, and return them."""
        ended = list(self._by_connection.get(connection, ()))
        for session in ended:
            self._drop(session)
        return ended

    def _drop(self, session: ShareSession | None) -> None:
        if session is None:
            return
        del self._sessions[session.group, session.member_id]
        of_connection = self._by_connection[session.connection]
        of_connection.discard(session)
        if not of_connection:
            del self._by_connection[session.connection]
