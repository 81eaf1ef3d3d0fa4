"""Tell the groups of topics that were created, deleted or grown.

There may be a hundred thousand groups, and a client may create a thousand topics at once. So one topic is told at a
time, and in each turn of the loop to some groups.
"""

from __future__ import annotations

from contextvars import Context

from ..work_budget import Ongoing, Pace, Steps
from .table import GroupTable

# What it takes to tell a group of a topic, in pieces of ``Pace``.
_PIECES_PER_GROUP = 10


class TopicChanges:
    """Changes that the groups of ``table`` have yet to hear of."""

    def __init__(self, table: GroupTable) -> None:
        self._table = table
        self._topics: dict[str, None] = {}
        self._telling: Ongoing[None] | None = None

    def changed(self, topic: str) -> None:
        """Tell the groups, in this turn of the loop if they are not too many."""
        if self._table.is_open:
            self._topics[topic] = None
            if self._telling is None:
                self._go_on()

    def _go_on(self) -> None:
        while self._table.is_open and (self._telling is not None or self._topics):
            if self._telling is None:
                topic = next(iter(self._topics))
                del self._topics[topic]
                self._telling = Ongoing(self._tell(topic))
            if not self._telling.go_on():
                self._table.scheduler.call_later(0, self._go_on, context=Context())
                return
            self._telling = None
        self._topics.clear()
        self._telling = None

    def _tell(self, topic: str) -> Steps[None]:
        pace = Pace()
        for name, live in list(self._table.groups.items()):
            # It may have been deleted during a pause, or be another broker's now.
            if self._table.groups.get(name) is live:
                live.topics_changed(topic)
            if pace.is_due(_PIECES_PER_GROUP):
                yield
