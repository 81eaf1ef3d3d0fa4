"""What a connector must know of earlier runs besides its records, in a topic of its own: which tables it has copied."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import msgspec

from ..client import Client
from ..errors import UnknownTopicError
from .events import Event
from .log_writer import LogWriter

# The state outlives everything: it is a few records for each table.
CONFIGS = {"retention.ms": "-1"}
_PAGE = 1000


class Origin(msgspec.Struct, frozen=True):
    """Which PostgreSQL this is; ``system`` is the identifier of its cluster."""

    system: str
    database: str


class TableState(msgspec.Struct, frozen=True):
    """``lsn``: changes that were committed before it are in the copy, or were not asked for.

    ``copy`` is ``left`` once the table was not followed any more. ``table_id`` is the OID of the table.
    """

    copy: Literal["begun", "done", "left"]
    lsn: int
    table_id: int = 0


@dataclass(slots=True)
class State:
    origin: Origin | None = None
    tables: dict[str, TableState] = field(default_factory=dict[str, TableState])


def load(client: Client, topic: str) -> State:
    """Everything that runs before this one have noted. Raises SteleClientError."""
    state = State()
    offset = 0
    while True:
        try:
            page = client.fetch(topic, 0, offset, max_records=_PAGE)
        except UnknownTopicError:
            return state
        for record in page.records:
            key = (record.key or b"").decode()
            if record.value is None:
                continue
            if key == "origin":
                state.origin = msgspec.json.decode(record.value, type=Origin)
            elif key.startswith("table:"):
                state.tables[key[6:]] = msgspec.json.decode(record.value, type=TableState)
        if not page.records:
            return state
        offset = page.next_offset


class Notebook:
    """Writes the state as the same producer that writes the records: a run that is fenced can not note anything."""

    def __init__(self, writer: LogWriter, topic: str) -> None:
        self._writer = writer
        self._topic = topic
        writer.open(topic, partitions=1, configs=CONFIGS)

    def note(self, key: str, value: Origin | TableState, *, now_ms: int) -> None:
        """Returns when it, and every record before it, is synced. Raises SteleClientError."""
        event = Event("s", key.encode(), msgspec.json.encode(value))
        self._writer.add(self._topic, event, [], timestamp_ms=now_ms, position=None)
        self._writer.flush()
