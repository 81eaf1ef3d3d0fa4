"""The members of a group, their waiting requests and session timers.

A member's session restarts with its heartbeats, commits and syncs, and with the
answer to a request that it was parked for. A parked member does not expire, with
two exceptions. A new member does not know its id yet: if its connection breaks it
cannot leave, so it expires after ``NEW_MEMBER_JOIN_TIMEOUT_MS``. A managed member
has no connection that could be parked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ...errors import RebalanceInProgress, SteleError
from ..base.context import GroupContext
from ..base.member import Member
from ..base.messages import Joined, Synced
from ..base.parking import Parking
from ..base.timers import Sessions
from .group import Group
from .managed_members import ManagedMembers

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
# A member id starts with this much of the client id or instance id. Nothing parses it.
_MEMBER_ID_PREFIX_MAX = 255


def new_member_id(context: GroupContext, prefix: str) -> str:
    """Return an id for a member whose client id or instance id is ``prefix``."""
    return f"{prefix[:_MEMBER_ID_PREFIX_MAX]}-{context.make_id()}"


class LiveMembers:
    """Keeps ``group``, parked requests and sessions in step as members come and go.

    ``expire`` is called with the id of a member, or with an id that was handed out,
    when its session times out.
    """

    def __init__(self, group: Group, context: GroupContext, *, expire: Callable[[str], None]) -> None:
        self.group = group
        self.parking = Parking(context.answers)
        self.managed = ManagedMembers(group)
        self.sessions = Sessions(context.scheduler, expire)
        self.is_closed = False
        for member in group.members.values():
            self.start_session(member)

    def close(self, error: SteleError) -> None:
        """Answer all parked requests with ``error``, and stop the sessions for good."""
        self.is_closed = True
        self.sessions.close()
        for member in self.group.members.values():
            self.refuse(member, error)
        self.managed.close(error)

    # ── joining and leaving ──

    def add(self, member: Member, protocol_type: str) -> asyncio.Future[Joined]:
        """Add a new member and park its join."""
        self.group.add(member, protocol_type)
        future = self.park_join(member)
        self.sessions.start(member.member_id, NEW_MEMBER_JOIN_TIMEOUT_MS)
        return future

    def replace_static(self, old: Member, member_id: str, error: SteleError) -> Member:
        """Give the instance of ``old`` the id ``member_id``.

        The parked requests of ``old`` are answered with ``error``.
        """
        self.refuse(old, error)
        self.sessions.stop(old.member_id)
        return self.group.replace_static(old, member_id)

    def remove(self, member_id: str, error: SteleError) -> None:
        """Remove a member; answers what it is parked for with ``error``."""
        self.refuse(self.group.members[member_id], error)
        self.managed.refuse(member_id, error)
        self.sessions.stop(member_id)
        self.group.remove(member_id)

    # ── ids that were handed out for a join that has not come yet ──

    def await_join(self, member_id: str, session_timeout_ms: int) -> None:
        """Expect a member to join with ``member_id`` within its session timeout."""
        self.group.pending.add(member_id)
        self.sessions.start(member_id, session_timeout_ms)

    def forget_pending(self, member_id: str) -> None:
        """Expect no join with ``member_id`` any longer, if it was expected."""
        if member_id in self.group.pending:
            self.group.pending.discard(member_id)
            self.sessions.stop(member_id)

    # ── sessions ──

    def start_session(self, member: Member) -> None:
        """Restart the session timeout of ``member``."""
        self.sessions.start(member.member_id, member.session_timeout_ms)

    def keep_alive(self, member: Member) -> None:
        """Restart the session of a member that sent a request.

        A member that is parked as a new one keeps the longer timeout.
        """
        if not member.is_new:
            self.start_session(member)

    # ── parked requests ──

    def park_join(self, member: Member) -> asyncio.Future[Joined]:
        """Park a join; an earlier request of the member is answered with ``RebalanceInProgress``."""
        # The member asks again over another connection, so no client reads the earlier answer.
        self.refuse(member, RebalanceInProgress(self.group.name))
        self.mark_joined(member)
        return self.parking.park_join(member)

    def mark_joined(self, member: Member) -> None:
        """Join a member to the next generation; no request of a managed one is parked."""
        self.group.set_awaiting_join(member, True)

    def answer_join(self, member: Member, result: Joined | SteleError) -> None:
        """Answer the parked join of ``member``, if there is one."""
        self.group.set_awaiting_join(member, False)
        self.parking.answer_join(member, result)

    def refuse(self, member: Member, error: SteleError) -> None:
        """Answer all parked requests of ``member`` with ``error``."""
        self.answer_join(member, error)
        self.parking.answer_sync(member, error)

    def park_sync(self, member: Member) -> asyncio.Future[Synced]:
        """Park a sync; an earlier one of the member is answered with ``RebalanceInProgress``."""
        self.parking.answer_sync(member, RebalanceInProgress(self.group.name))
        return self.parking.park_sync(member)

    def refuse_syncs(self, error: SteleError) -> None:
        """Answer all parked syncs with ``error``."""
        for member in self.group.members.values():
            if member.is_awaiting_sync:
                self.parking.answer_sync(member, error)
                self.start_session(member)

    def answer_assigned(self, member: Member) -> None:
        """Send a managed member its assignment, if it waits for one."""
        if self.managed.answer_assigned(member):
            self.start_session(member)
