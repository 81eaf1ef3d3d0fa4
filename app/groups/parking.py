"""Answers that are due: joins and syncs that wait for other members."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from ..errors import SteleError
from .member import Member
from .messages import Joined, Synced

_T = TypeVar("_T")


def answer(future: asyncio.Future[_T], result: _T | SteleError) -> None:
    """Complete ``future``, if whoever asked still waits."""
    if future.done():
        return
    if isinstance(result, SteleError):
        future.set_exception(result)
        # Marks it as seen: nobody may be there any more to look.
        future.exception()
    else:
        future.set_result(result)


class Parking:
    """The futures of one group's members; each member is parked for one join and one sync at most.

    Keeps ``is_awaiting_join`` and ``is_awaiting_sync`` of the members true.
    """

    def __init__(self) -> None:
        self._joins: dict[str, asyncio.Future[Joined]] = {}
        self._syncs: dict[str, asyncio.Future[Synced]] = {}

    @property
    def member_ids(self) -> set[str]:
        return {*self._joins, *self._syncs}

    def park_join(self, member: Member) -> asyncio.Future[Joined]:
        assert not member.is_awaiting_join
        future: asyncio.Future[Joined] = asyncio.get_running_loop().create_future()
        self._joins[member.member_id] = future
        member.is_awaiting_join = True
        return future

    def park_sync(self, member: Member) -> asyncio.Future[Synced]:
        assert not member.is_awaiting_sync
        future: asyncio.Future[Synced] = asyncio.get_running_loop().create_future()
        self._syncs[member.member_id] = future
        member.is_awaiting_sync = True
        return future

    def mark_joined(self, member: Member) -> None:
        """It joins the next generation, and nobody waits for an answer: the broker joins for it."""
        member.is_awaiting_join = True

    def is_parked(self, member: Member, future: asyncio.Future[Joined]) -> bool:
        """That join was not answered yet."""
        return self._joins.get(member.member_id) is future

    def answer_join(self, member: Member, result: Joined | SteleError) -> None:
        """Nothing happens if it is not parked; the same for syncs."""
        if member.is_awaiting_join:
            member.is_awaiting_join = False
            future = self._joins.pop(member.member_id, None)
            if future is not None:
                answer(future, result)

    def answer_sync(self, member: Member, result: Synced | SteleError) -> None:
        if member.is_awaiting_sync:
            member.is_awaiting_sync = False
            answer(self._syncs.pop(member.member_id), result)

    def refuse(self, member: Member, error: SteleError) -> None:
        """Answer all that is due to ``member`` with ``error``."""
        self.answer_join(member, error)
        self.answer_sync(member, error)
