"""The forms of values: what a row and an envelope are as bytes, in JSON or Avro. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, repeat
from typing import Any, Protocol, TypeAlias, TypeVar, cast

import msgspec

from ..decoding.pgoutput import UNCHANGED, Begin, Relation, Row, Unchanged
from ..decoding.values import Encoder, as_is, inner_texts, quoted, text
from ..errors import CdcError
from . import avro_values
from .avro_values import NULL, PRESENT

encode_json: Callable[[object], bytes] = msgspec.json.Encoder().encode
_ENVELOPE = b'%s{"op":"%s","before":%s,"after":%s,%s"source":%s'
_LSN = b'{"lsn":%d'
# Rows for which no format is made.
_FEW = 4
T = TypeVar("T")
# Transactions in commit order, with the number of rows that each has.
Parts: TypeAlias = Sequence[tuple[Begin, int]]


def for_each_row(parts: Parts, make: Callable[[Begin], T]) -> list[T]:
    """Return what ``make`` makes of the transaction of each row; it is called once per transaction."""
    made = [make(transaction) for transaction, _ in parts]
    return list(chain.from_iterable(map(repeat, made, [count for _, count in parts])))


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

    def new_rows(
        self,
        op: bytes,
        rows: Sequence[Row],
        lsns: Sequence[int],
        parts: Parts,
        *,
        is_whole: bool,
        is_row_only: bool,
    ) -> list[bytes]:
        """Return the values of records of rows that are inserted, or updated without an old row.

        ``is_whole``: each row has all its values, and no NULL. ``is_row_only``: without an envelope.

        Raises:
            CdcError: the form has no such value.
        """
        if is_row_only:
            return [self.record(self.row(row)) for row in rows]
        return [
            self.envelope(
                op,
                None,
                self.row(row),
                self.source(lsn=lsn, commit_lsn=commit_lsn, xid=xid, ts_us=ts_us),
                (),
            )
            for row, lsn, (commit_lsn, ts_us, xid) in zip(
                rows, lsns, for_each_row(parts, lambda transaction: transaction), strict=True
            )
        ]


class JsonForm(ValueForm):
    """JSON after a ``prefix``, which names the schema; without a schema it is empty."""

    def __init__(self, relation: Relation, encoders: Sequence[Encoder], *, prefix: bytes = b"") -> None:
        columns = relation.columns
        self._columns = [
            (b"%s:" % encode_json(column.name), encode, column.is_key)
            for column, encode in zip(columns, encoders, strict=True)
        ]
        self._encoders = list(encoders)
        # Of a row with all its values, which are encoded.
        self._whole = b"{%s}" % b",".join(_escaped(field) + b"%s" for field, *_ in self._columns)
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

    def new_rows(
        self,
        op: bytes,
        rows: Sequence[Row],
        lsns: Sequence[int],
        parts: Parts,
        *,
        is_whole: bool,
        is_row_only: bool,
    ) -> list[bytes]:
        if len(rows) < _FEW:
            return super().new_rows(op, rows, lsns, parts, is_whole=is_whole, is_row_only=is_row_only)
        columns: list[Sequence[Any]] = []
        members: list[bytes] = []
        by_column = cast("Iterable[tuple[bytes | None, ...]]", zip(*rows, strict=True))
        for (field, encode, _), data in zip(self._columns, by_column, strict=True):
            member = b"%s"
            column = encoded = cast("Sequence[bytes]", data)
            if not is_whole and None in data:
                encoded = [b"null" if datum is None else encode(datum) for datum in data]
            elif encode is quoted or encode is text:
                member = b'"%s"'
                encoded = column if encode is quoted else inner_texts(column)
            elif encode is not as_is:
                encoded = list(map(encode, column))
            columns.append(encoded)
            members.append(_escaped(field) + member)
        row = b"{%s}" % b",".join(members)
        prefix = _escaped(self._prefix)
        if is_row_only:
            record = prefix + row
            return [record % values for values in zip(*columns, strict=True)]
        envelope = _ENVELOPE % (prefix, op, b"null", row, b"", _LSN + b"%s")
        origins = for_each_row(
            parts, lambda transaction: self._origin(transaction.xid, transaction.commit_us)
        )
        return [envelope % values for values in zip(*columns, lsns, origins, strict=True)]

    def source(self, *, lsn: int, commit_lsn: int, xid: int | None, ts_us: int) -> bytes:
        return _LSN % lsn + self._origin(xid, ts_us)

    def _origin(self, xid: int | None, ts_us: int) -> bytes:
        return b',"txid":%s,"ts_ms":%d%s' % (
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
        return _ENVELOPE % (self._prefix, op, before or b"null", after or b"null", left_out, source)


class AvroForm(ValueForm):
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


def _text(name: str) -> bytes:
    return avro_values.binary(name.encode())


def _escaped(literal: bytes) -> bytes:
    """Return what a format makes ``literal`` of."""
    return literal.replace(b"%", b"%%")
