"""Parked requests: joins and syncs that wait for other members or the store."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from ...errors import SteleError
from ...turns import Turns
from .member import Member
from .messages import Joined, Synced

_T = TypeVar("_T")

# Requests that are answered in one turn of the loop: each wakes a task, which encodes its answer and sends it, in
# some 100 µs.
ANSWERS_PER_TURN = 16


def answer(future: asyncio.Future[_T], result: _T | SteleError) -> None:
    """Complete ``future``, unless its caller cancelled it."""
    if future.done():
        return
    if isinstance(result, SteleError):
        future.set_exception(result)
        # Marks the exception as retrieved, because the caller may have dropped the future.
        future.exception()
    else:
        future.set_result(result)


class Parking:
    """The futures of one group's members; each member is parked for at most one join and one sync.

    They are completed in portions (``answers``). Keeps ``is_awaiting_sync`` of the members true; ``is_awaiting_join`` is up to
    ``Group.set_awaiting_join``.
    """

    def __init__(self, answers: Turns) -> None:
        self._answers = answers
        self._joins: dict[str, asyncio.Future[Joined]] = {}
        self._syncs: dict[str, asyncio.Future[Synced]] = {}

    @property
    def member_ids(self) -> set[str]:
        return {*self._joins, *self._syncs}

    def park_join(self, member: Member) -> asyncio.Future[Joined]:
        future: asyncio.Future[Joined] = asyncio.get_running_loop().create_future()
        self._joins[member.member_id] = future
        return future

    def park_sync(self, member: Member) -> asyncio.Future[Synced]:
        assert not member.is_awaiting_sync
        future: asyncio.Future[Synced] = asyncio.get_running_loop().create_future()
        self._syncs[member.member_id] = future
        member.is_awaiting_sync = True
        return future

    def is_parked(self, member: Member, future: asyncio.Future[Joined]) -> bool:
        """True while the join of ``future`` is not answered."""
        return self._joins.get(member.member_id) is future

    def answer_join(self, member: Member, result: Joined | SteleError) -> None:
        """Answer the parked join of ``member``, if there is one."""
        future = self._joins.pop(member.member_id, None)
        if future is not None:
            self._answers.call(lambda: answer(future, result))

    def answer_sync(self, member: Member, result: Synced | SteleError) -> None:
        """Answer the parked sync of ``member``, if there is one."""
        if member.is_awaiting_sync:
            member.is_awaiting_sync = False
            future = self._syncs.pop(member.member_id)
            self._answers.call(lambda: answer(future, result))
