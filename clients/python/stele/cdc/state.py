"""State of earlier runs, in a topic: the database, and the tables already copied."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import msgspec

from ..client import Client
from ..errors import UnknownTopicError
from .log_writer import LogWriter
from .options import Format, ValueFormat
from .records.events import Event

# The state is a few records per table, kept forever.
CONFIGS = {"retention.ms": "-1"}
_PAGE = 1000
# Keys of first copies, with the name of the table, and of copies that were asked for, with the offset of the request.
COPY = "copy:"
ASK = "ask:"


class Origin(msgspec.Struct, frozen=True):
    """The database; ``system`` is the identifier of its PostgreSQL cluster."""

    system: str
    database: str


class TableState(msgspec.Struct, frozen=True):
    """State of a table.

    Changes committed before ``lsn`` are in the copy, or were not requested. ``copy`` is
    ``left`` once the table is no longer followed. ``table_id`` is the OID of the table.
    ``published``, ``partitions`` and ``keys`` are those of ``Published``. ``has_topic``: its topic was
    there. These are empty in the state of earlier releases.
    """

    copy: Literal["begun", "done", "left"]
    lsn: int
    table_id: int = 0
    published: str = ""
    partitions: dict[str, str] = {}
    keys: tuple[str, ...] = ()
    has_topic: bool = False


class Copying(msgspec.Struct, frozen=True):
    """A copy of a table that is not whole: the rows with keys up to ``after`` are in the topic.

    ``lsn`` is that of the table's state if it is the first copy of the table; somebody asked for others, of the rows
    that ``where`` chooses. Of those it is kept that they are done. ``copied`` counts rows, for the status.
    """

    table: str
    lsn: int = 0
    after: tuple[str, ...] = ()
    where: str = ""
    is_done: bool = False
    copied: int = 0


class Mode(msgspec.Struct, frozen=True):
    """Whether runs write transactions, and what the values of records are."""

    transactions: bool
    value: ValueFormat = "envelope"
    format: Format = "json"


class SlotState(msgspec.Struct, frozen=True):
    """Up to where the slot may have been confirmed; None while a run may confirm more.

    ``timeline`` is that of the server; 0 before the first run. ``history`` has the LSN at which it left each earlier one.
    ``epoch`` is that of the named producer in the run that noted it; -1 before the first run.

    All changes up to ``stored_lsn`` are in the topics. If there is a ``gap_lsn``, those from there up to it may be
    missing, in tables that were not copied since.
    """

    confirmed_lsn: int | None
    timeline: int = 0
    epoch: int = -1
    history: dict[int, int] = {}
    stored_lsn: int = 0
    gap_lsn: int = 0


@dataclass(slots=True)
class State:
    """``mode`` is None before the first transaction and without a schema, ``slot`` before the first stop.

    ``copying`` has copies by their keys in the topic.
    """

    origin: Origin | None = None
    mode: Mode | None = None
    slot: SlotState | None = None
    tables: dict[str, TableState] = field(default_factory=dict[str, TableState])
    copying: dict[str, Copying] = field(default_factory=dict[str, Copying])


def load(client: Client, topic: str) -> State:
    """Load the state that earlier runs recorded. Raises SteleClientError."""
    state = State()
    offset = 0
    while True:
        try:
            page = client.fetch(topic, 0, offset, max_records=_PAGE)
        except UnknownTopicError:
            return state
        for record in page.records:
            key = (record.key or b"").decode()
            if key.startswith((COPY, ASK)):
                if record.value is None:
                    state.copying.pop(key, None)
                else:
                    state.copying[key] = msgspec.json.decode(record.value, type=Copying)
            elif record.value is None:
                continue
            elif key == "origin":
                state.origin = msgspec.json.decode(record.value, type=Origin)
            elif key == "mode":
                state.mode = msgspec.json.decode(record.value, type=Mode)
            elif key == "slot":
                state.slot = msgspec.json.decode(record.value, type=SlotState)
            elif key.startswith("table:"):
                state.tables[key[6:]] = msgspec.json.decode(record.value, type=TableState)
        # A page without records may stand for an aborted transaction.
        if page.next_offset <= offset:
            return state
        offset = page.next_offset


class Notebook:
    """Writes the state with the producer of the records, so that a fenced run cannot."""

    def __init__(self, writer: LogWriter, topic: str) -> None:
        self._writer = writer
        self._topic = topic
        writer.open(topic, partitions=1, configs=CONFIGS)

    def write(
        self, key: str, value: Origin | Mode | SlotState | TableState | Copying | None, *, now_ms: int
    ) -> None:
        """Write a value, or that there is none; the next ``note`` syncs it. Raises SteleClientError."""
        event = Event("s", key.encode(), None if value is None else msgspec.json.encode(value))
        self._writer.add(self._topic, event, [], timestamp_ms=now_ms, position=None)

    def note(
        self, key: str, value: Origin | Mode | SlotState | TableState | Copying | None, *, now_ms: int
    ) -> None:
        """Write a value; sync it and all records before it. Raises SteleClientError."""
        self.write(key, value, now_ms=now_ms)
        self._writer.flush()
