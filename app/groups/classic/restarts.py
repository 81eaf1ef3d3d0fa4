"""Keeps static members that came back after a restart, those of a moment together."""

from __future__ import annotations

from collections.abc import Callable

from ...errors import SteleError
from ..base.context import GroupContext
from ..base.states import GroupState
from .live_members import LiveMembers


class Restarts:
    """Writes the record of a stable group in which members have new ids.

    The record has all members, so those that come back while it is written share the next one: otherwise a restart of
    a thousand members would write a million.
    """

    def __init__(self, members: LiveMembers, context: GroupContext) -> None:
        self._members = members
        self._context = context
        self._waiting: list[Callable[[SteleError | None], None]] = []
        self._is_writing = False

    def keep(self, done: Callable[[SteleError | None], None]) -> None:
        """Call ``done`` when the group is kept as it is now; never if the next generation is, which answers all."""
        self._waiting.append(done)
        if not self._is_writing:
            self._write()

    def _write(self) -> None:
        group = self._members.group
        waiting, self._waiting = self._waiting, []
        if self._members.is_closed or group.state is not GroupState.STABLE:
            return
        self._is_writing = True

        def written(error: SteleError | None) -> None:
            self._is_writing = False
            for done in waiting:
                done(error)
            # One of them may have begun to write already.
            if self._waiting and not self._is_writing:
                self._write()

        self._context.persist([group.record()], written)
