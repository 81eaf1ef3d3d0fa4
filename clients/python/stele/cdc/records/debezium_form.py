"""Rows and changes as Debezium's connector for PostgreSQL writes them, in JSON with or without schemas. No I/O."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ..decoding.pgoutput import Relation, Row, Unchanged
from ..errors import CdcError
from .connect_avro import avro_schema, encoder_of
from .debezium_types import ConnectType, Schema
from .forms import ValueForm, encode_json

VERSION = "3.6.1.Final"
"""The release whose form this is; readers compare it."""

_SNAPSHOTS = "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"


def _field(field: str, type_: str, *, optional: bool = True, **more: Any) -> Schema:
    return {"type": type_, "optional": optional, **more, "field": field}


_SOURCE_FIELDS: list[Schema] = [
    *(_field(name, "string", optional=False) for name in ("version", "connector", "name")),
    _field("ts_ms", "int64", optional=False),
    _field(
        "snapshot", "string", name="io.debezium.data.Enum", version=1, parameters={"allowed": _SNAPSHOTS}, default="false"
    ),
    _field("db", "string", optional=False),
    _field("sequence", "string"),
    _field("ts_us", "int64"),
    _field("ts_ns", "int64"),
    _field("schema", "string", optional=False),
    _field("table", "string", optional=False),
    *(_field(name, "int64") for name in ("txId", "lsn", "xmin")),
    _field("origin", "string"),
    _field("origin_lsn", "int64"),
]  # fmt: skip
_AFTER_ROWS: list[Schema] = [
    {"type": "struct", "fields": _SOURCE_FIELDS, "optional": False,
     "name": "io.debezium.connector.postgresql.Source", "version": 1, "field": "source"},
    {"type": "struct", "fields": [_field("id", "string", optional=False), _field("total_order", "int64", optional=False),
                                  _field("data_collection_order", "int64", optional=False)],
     "optional": True, "name": "event.block", "version": 1, "field": "transaction"},
    _field("op", "string", optional=False),
    *(_field(name, "int64") for name in ("ts_ms", "ts_us", "ts_ns")),
]  # fmt: skip


class DebeziumForm(ValueForm):
    """Makes keys, and values as of ``ValueForm``.

    Columns outside of the key may be null, because PostgreSQL sends neither the other columns of a deleted key nor
    unchanged large values.
    """

    def __init__(
        self,
        relation: Relation,
        types: Sequence[ConnectType],
        *,
        keys: Sequence[str],
        topic: str,
        server: str,
        database: str,
        with_schemas: bool,
    ) -> None:
        """``keys`` are the columns of the key in order, ``server`` the prefix of the topics."""
        self._name = f"{relation.schema}.{relation.table}"
        columns = [(c.name, type_, c.name in keys) for c, type_ in zip(relation.columns, types, strict=True)]
        self._columns = [
            (b"%s:" % encode_json(column.name), column.name, type_, column.is_key)
            for column, type_ in zip(relation.columns, types, strict=True)
        ]
        names = [column.name for column in relation.columns]
        self._keys = [names.index(name) for name in keys if name in names] if set(keys) <= set(names) else []
        self._origin = b'{"version":"%s","connector":"postgresql","name":%s,"ts_ms":' % (
            VERSION.encode(),
            encode_json(server),
        )
        self._database = b'","db":%s,"sequence":' % encode_json(database)
        self._table = b'"schema":%s,"table":%s,"txId":' % (
            encode_json(relation.schema),
            encode_json(relation.table),
        )
        fields = [{**type_.schema, "optional": not is_key, "field": name} for name, type_, is_key in columns]
        row: Schema = {"type": "struct", "fields": fields, "optional": True, "name": f"{topic}.Value"}
        envelope: Schema = {
            "type": "struct",
            "fields": [{**row, "field": "before"}, {**row, "field": "after"}, *_AFTER_ROWS],
            "optional": False,
            "name": f"{topic}.Envelope",
            "version": 2,
        }
        key: Schema = {
            "type": "struct",
            "fields": [fields[index] for index in self._keys],
            "optional": False,
            "name": f"{topic}.Key",
        }
        self._before_key, self._before_row, self._before_value = (
            b'{"schema":%s,"payload":' % encode_json(schema) if with_schemas else b""
            for schema in (key, row, envelope)
        )
        self._end = b"}" if with_schemas else b""
        self.schemas: tuple[Schema, Schema, Schema] = key, row, envelope

    def key(self, row: Row) -> bytes | None:
        """Return the key of a row; None without key columns. Raises CdcError."""
        if not self._keys:
            return None
        return b"%s%s%s" % (self._before_key, self.plain_key(row), self._end)

    def plain_key(self, row: Row) -> bytes:
        """Return the key of a row without a schema."""
        return b"{%s}" % b",".join([self._member(index, row[index]) for index in self._keys])

    def _member(self, index: int, datum: object) -> bytes:
        field, name, type_, _ = self._columns[index]
        if datum is None:
            return field + b"null"
        if isinstance(datum, Unchanged):
            return field + type_.unavailable
        assert isinstance(datum, bytes)
        try:
            return field + type_.encode(datum)
        except ValueError as error:
            raise CdcError(
                f"a value of column {name} of {self._name} has no form in Debezium's: {error}; follow the table with "
                "another --prefix and --slot, and --decimals string or --format json"
            ) from None

    def row(self, row: Row, *, only_identity: bool = False) -> bytes:
        return b"{%s}" % b",".join(
            [
                self._member(index, None if only_identity and not self._columns[index][3] else datum)
                for index, datum in enumerate(row)
            ]
        )

    def source(self, *, lsn: int, commit_lsn: int, xid: int | None, ts_us: int) -> bytes:
        return b'%s%d,"snapshot":"%s%s"[\\"%d\\",\\"%d\\"]","ts_us":%d,"ts_ns":%d,%s%s,"lsn":%d,%s' % (
            self._origin,
            ts_us // 1000,
            b"true" if xid is None else b"false",
            self._database,
            commit_lsn,
            lsn,
            ts_us,
            ts_us * 1000,
            self._table,
            b"null" if xid is None else b"%d" % xid,
            lsn,
            b'"xmin":null,"origin":null,"origin_lsn":null}',
        )

    def record(self, row: bytes) -> bytes:
        return self._before_row + row + self._end

    def envelope(
        self, op: bytes, before: bytes | None, after: bytes | None, source: bytes, unchanged: Sequence[str]
    ) -> bytes:
        now_ns = time.time_ns()
        return (
            b'%s{"before":%s,"after":%s,"source":%s,"transaction":null,"op":"%s","ts_ms":%d,"ts_us":%d,"ts_ns":%d}%s'
            % (
                self._before_value,
                before or b"null",
                after or b"null",
                source,
                op,
                now_ns // 10**6,
                now_ns // 1000,
                now_ns,
                self._end,
            )
        )


class DebeziumAvroForm(DebeziumForm):
    """The same in Avro, for keys and values, as Confluent's converter writes them."""

    def __init__(
        self, *given: Any, prefix_of: Callable[[str, bool], bytes], is_row_only: bool, **named: Any
    ) -> None:
        """``prefix_of`` registers a schema, of keys or of values, and returns what precedes those that have it."""
        super().__init__(*given, with_schemas=False, **named)
        key, row, envelope = self.schemas
        self._key_prefix = prefix_of(avro_schema(key), True) if self._keys else b""
        value = row if is_row_only else envelope
        self._value_prefix = prefix_of(avro_schema(value), False)
        self._encode_key, self._encode_value = encoder_of(key), encoder_of(value)

    def key(self, row: Row) -> bytes | None:
        if not self._keys:
            return None
        return self._key_prefix + self._encode_key(msgspec.json.decode(self.plain_key(row)))

    def record(self, row: bytes) -> bytes:
        return self._value_prefix + self._encode_value(msgspec.json.decode(row))

    def envelope(
        self, op: bytes, before: bytes | None, after: bytes | None, source: bytes, unchanged: Sequence[str]
    ) -> bytes:
        return self.record(super().envelope(op, before, after, source, unchanged))
