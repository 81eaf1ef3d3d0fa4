"""The topic of schema changes: the columns of each table, whenever they differ from before, and accepted gaps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ..client import Client
from ..errors import UnknownTopicError
from .decoding.notation import lsn_text
from .decoding.pgoutput import Relation
from .log_writer import LogWriter
from .options import CdcOptions
from .postgres.catalog import Postgres
from .records.events import EVENT_ID, Event, Headers, Position

_PAGE = 1000


class Columns(msgspec.Struct, frozen=True):
    """What a record tells of a table; ``types`` are those of ``names`` as PostgreSQL writes them."""

    names: tuple[str, ...]
    types: tuple[str, ...]
    key: tuple[str, ...]

    def document(self) -> list[dict[str, Any]]:
        return [
            {"name": name, "type": type_, "key": name in self.key}
            for name, type_ in zip(self.names, self.types, strict=True)
        ]


class _Column(msgspec.Struct, frozen=True):
    name: str
    type: str
    key: bool


class _Document(msgspec.Struct, frozen=True):
    """What of a record is read again."""

    table: str
    after: list[_Column]


class SchemaLog:
    """Writes a record when the columns of a table are not those of its last record.

    The topic itself is the memory: a run reads it first, so a record is written exactly once, with the change before
    which PostgreSQL has told of the columns.
    """

    def __init__(self, client: Client, writer: LogWriter, postgres: Postgres, options: CdcOptions) -> None:
        """Read the topic; earlier runs must be fenced. Raises SteleClientError."""
        self._writer = writer
        self._postgres = postgres
        self._options = options
        self._known: dict[str, tuple[Columns, Position]] = {}
        self._read(client)

    def note(
        self, relation: Relation, keys: tuple[str, ...], position: Position, *, xid: int | None, ts_us: int
    ) -> None:
        """Write the columns of a table at a position of the stream, or of its copy, unless they are known.

        Raises:
            CdcError, Interrupted, SteleClientError
        """
        name = f"{relation.schema}.{relation.table}"
        known = self._known.get(name)
        now = Columns(
            tuple(column.name for column in relation.columns),
            tuple(
                self._postgres.type_name(column.type_id, column.type_modifier) for column in relation.columns
            ),
            tuple(column.name for column in relation.columns if column.name in keys),
        )
        if known is not None and (known[0] == now or position <= known[1]):
            return
        self._known[name] = now, position
        document = {
            "kind": "schema",
            "table": name,
            "topic": self._options.topic_of(relation.schema, relation.table),
            "before": None if known is None else known[0].document(),
            "after": now.document(),
            "source": {
                "lsn": position.change_lsn or position.commit_lsn,
                "txid": xid,
                "ts_ms": ts_us // 1000,
            },
        }
        topic = self._options.schema_topic
        self._writer.open(topic, partitions=1, configs=self._options.message_topic_configs)
        headers: Headers = [("operation", b"schema"), (EVENT_ID, str(position).encode())]
        # Without a position for the writer: the copies of tables are not in the order of the stream.
        event = Event("schema", name.encode(), msgspec.json.encode(document))
        self._writer.add(topic, event, headers, timestamp_ms=ts_us // 1000, position=None)

    def gap(self, from_lsn: int, to_lsn: int, reason: str, lost: Sequence[str], *, now_ms: int) -> None:
        """Write that changes may be missing; together with what is written next. Raises SteleClientError."""
        document = {
            "kind": "gap",
            "from": lsn_text(from_lsn),
            "to": lsn_text(to_lsn),
            "of": lost,
            "reason": reason,
            "source": {"ts_ms": now_ms},
        }
        topic = self._options.schema_topic
        self._writer.open(topic, partitions=1, configs=self._options.message_topic_configs)
        event = Event("gap", self._options.slot.encode(), msgspec.json.encode(document))
        self._writer.add(topic, event, [("operation", b"gap")], timestamp_ms=now_ms, position=None)

    def _read(self, client: Client) -> None:
        offset = 0
        while True:
            try:
                page = client.fetch(self._options.schema_topic, 0, offset, max_records=_PAGE)
            except UnknownTopicError:
                return
            for record in page.records:
                position = dict(record.headers).get(EVENT_ID)
                if position is None:
                    continue
                document = msgspec.json.decode(record.value or b"", type=_Document)
                found = Columns(
                    tuple(column.name for column in document.after),
                    tuple(column.type for column in document.after),
                    tuple(column.name for column in document.after if column.key),
                )
                self._known[document.table] = found, Position.parse(position.decode())
            if page.next_offset <= offset:
                return
            offset = page.next_offset
