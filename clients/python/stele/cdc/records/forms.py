"""The forms of values: what a row and an envelope are as bytes, in JSON or Avro. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, cast

import msgspec

from ..decoding.pgoutput import UNCHANGED, Relation, Row, Unchanged
from ..decoding.values import Encoder
from ..errors import CdcError
from . import avro_values
from .avro_values import NULL, PRESENT

encode_json: Callable[[object], bytes] = msgspec.json.Encoder().encode


class ValueForm(Protocol):
    """Makes the values of a table's records of the bytes of their parts."""

    def row(self, row: Row, *, only_identity: bool = False) -> bytes:
        """Return a row, or its identity, without the values that PostgreSQL leaves out.

        Raises:
            CdcError: the form has no such value.
        """
        ...

    def source(self, *, lsn: int, commit_lsn: int, xid: int | None, ts_us: int) -> bytes:
        """Return where changes are from; ``xid`` is None in a copy."""
        ...

    def record(self, row: bytes) -> bytes:
        """Return the value of a record that is a row without an envelope."""
        ...

    def envelope(
        self, op: bytes, before: bytes | None, after: bytes | None, source: bytes, unchanged: Sequence[str]
    ) -> bytes: ...


class JsonForm:
    """JSON after a ``prefix``, which names the schema; without a schema it is empty."""

    def __init__(self, relation: Relation, encoders: Sequence[Encoder], *, prefix: bytes = b"") -> None:
        columns = relation.columns
        self._columns = [
            (b"%s:" % encode_json(column.name), encode, column.is_key)
            for column, encode in zip(columns, encoders, strict=True)
        ]
        self._encoders = list(encoders)
        # Of a row with all its values.
        self._whole = b"{%s}" % b",".join(field.replace(b"%", b"%%") + b"%s" for field, *_ in self._columns)
        self._prefix = prefix
        self._table = b',"schema":%s,"table":%s}}' % (
            encode_json(relation.schema),
            encode_json(relation.table),
        )

    def row(self, row: Row, *, only_identity: bool = False) -> bytes:
        if not only_identity and UNCHANGED not in row:
            return self._whole % tuple(
                [
                    b"null" if datum is None else encode(cast("bytes", datum))
                    for encode, datum in zip(self._encoders, row, strict=True)
                ]
            )
        return b"{%s}" % b",".join(
            [
                field + (b"null" if datum is None else encode(datum))
                for (field, encode, is_key), datum in zip(self._columns, row, strict=True)
                if not isinstance(datum, Unchanged) and (is_key or not only_identity)
            ]
        )

    def source(self, *, lsn: int, commit_lsn: int, xid: int | None, ts_us: int) -> bytes:
        return b'{"lsn":%d,"txid":%s,"ts_ms":%d%s' % (
            lsn,
            b"null" if xid is None else b"%d" % xid,
            ts_us // 1000,
            self._table,
        )

    def record(self, row: bytes) -> bytes:
        return self._prefix + row

    def envelope(
        self, op: bytes, before: bytes | None, after: bytes | None, source: bytes, unchanged: Sequence[str]
    ) -> bytes:
        left_out = b'"unchanged":[%s],' % b",".join(map(encode_json, unchanged)) if unchanged else b""
        return b'%s{"op":"%s","before":%s,"after":%s,%s"source":%s' % (
            self._prefix,
            op,
            before or b"null",
            after or b"null",
            left_out,
            source,
        )


class AvroForm:
    """Avro after a ``prefix``, which names the schema (``table_schemas.avro_schema``)."""

    def __init__(self, relation: Relation, encoders: Sequence[Encoder], *, prefix: bytes) -> None:
        self._name = f"{relation.schema}.{relation.table}"
        self._columns = [
            (column.name, encode, column.is_key)
            for column, encode in zip(relation.columns, encoders, strict=True)
        ]
        self._prefix = prefix
        self._table = _text(relation.schema) + _text(relation.table)

    def row(self, row: Row, *, only_identity: bool = False) -> bytes:
        parts: list[bytes] = []
        name = ""
        try:
            for (name, encode, is_key), datum in zip(self._columns, row, strict=True):  # noqa: B007 - for the error
                if isinstance(datum, bytes) and (is_key or not only_identity):
                    parts += (PRESENT, encode(datum))
                else:
                    parts.append(NULL)
        except ValueError as error:
            raise CdcError(
                f"a value of column {name} of {self._name} has no form in Avro: {error}; follow the table with --format "
                "json-schema, another --prefix and another --slot"
            ) from None
        return b"".join(parts)

    def source(self, *, lsn: int, commit_lsn: int, xid: int | None, ts_us: int) -> bytes:
        transaction = NULL if xid is None else PRESENT + avro_values.long(xid)
        return avro_values.long(lsn) + transaction + avro_values.long(ts_us // 1000) + self._table

    def record(self, row: bytes) -> bytes:
        return self._prefix + row

    def envelope(
        self, op: bytes, before: bytes | None, after: bytes | None, source: bytes, unchanged: Sequence[str]
    ) -> bytes:
        left_out = NULL
        if unchanged:
            left_out = PRESENT + avro_values.long(len(unchanged)) + b"".join(map(_text, unchanged)) + b"\x00"
        rows = [NULL if row is None else PRESENT + row for row in (before, after)]
        return b"".join((self._prefix, avro_values.binary(op), *rows, left_out, source))


def _text(text: str) -> bytes:
    return avro_values.binary(text.encode())
