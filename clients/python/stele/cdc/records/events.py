"""Conversion of row changes to keys and values of records. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Self, TypeAlias, cast

from ...wire import record_batch
from ..decoding.pgoutput import Delete, Relation, Row, Truncate, Unchanged, Update
from ..decoding.values import Encoder
from ..errors import CdcError
from .debezium_form import DebeziumForm
from .forms import Parts, ValueForm, encode_json, for_each_row


class Position(NamedTuple):
    """The position of a record in the order of the slot, the same in every repetition.

    ``commit_lsn`` orders transactions, ``change_lsn`` the changes of one, ``number``
    the records of one change (COPY writes many rows in one record of the WAL).
    """

    commit_lsn: int
    change_lsn: int
    number: int

    def __str__(self) -> str:
        return self.encoded().decode()

    def encoded(self) -> bytes:
        """Return the text form, which is ASCII."""
        return b"%X-%X-%d" % self

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the text form. Raises ValueError."""
        commit, change, number = text.split("-")
        return cls(int(commit, 16), int(change, 16), int(number))


EVENT_ID = "event_id"
_EVENT_ID_BYTES_MAX = 16 + 16 + 20 + 2
Headers: TypeAlias = list[tuple[str, bytes | None]]
_OPERATIONS = {op: ("operation", op.encode()) for op in "rcudt"}


class Event(NamedTuple):
    """A record to write; without ``key`` and ``instead_of_key`` it is one per partition of the topic.

    ``instead_of_key`` chooses the partition of a record without a key. ``headers`` are added to those of each event.
    """

    op: str
    key: bytes | None
    value: bytes | None
    instead_of_key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Table:
    """Makes events of a table's rows; replaced when the columns of the table change."""

    def __init__(
        self,
        relation: Relation,
        encoders: Sequence[Encoder],
        form: ValueForm,
        *,
        topic: str,
        key_columns: Sequence[str],
        key_column: str,
        with_tombstones: bool,
        has_record_per_row: bool = False,
        is_row_only: bool = False,
    ) -> None:
        """Choose the key: ``key_columns``, else ``key_column``, else the table's name.

        ``key_columns`` are those of the primary key or the identity index, in order; ``encoders`` are for
        keys of several columns.
        ``has_record_per_row``: the newest record of a key stands for its row, so it must be whole.
        ``is_row_only``: values are rows without an envelope, and a delete is a tombstone.
        """
        self.relation = relation
        self.name: str = f"{relation.schema}.{relation.table}"
        self.topic = topic
        self._channel = ("channel", self.name.encode())
        names = [column.name for column in relation.columns]
        wanted = [name for name in key_columns if name in names]
        if len(wanted) < len(key_columns) or not wanted:
            wanted = [key_column] if key_column in names else []
        self._keys = [names.index(name) for name in wanted]
        self._encoders = list(encoders)
        self._form = form
        self._debezium = form if isinstance(form, DebeziumForm) else None
        self._fields = [b"%s:" % encode_json(name) for name in names]
        self._with_tombstones = with_tombstones
        self._has_record_per_row = has_record_per_row
        self._is_row_only = is_row_only
        # It also chooses the partition of rows without a key.
        self.fallback: bytes = self.name.encode()
        self.header_bytes: int = (
            sum(map(len, (*self._channel, *_OPERATIONS["c"], EVENT_ID))) + _EVENT_ID_BYTES_MAX
        )

    def source(self, *, lsn: int, commit_lsn: int, xid: int | None, ts_us: int) -> bytes:
        """Return what events of a change, or of a copy, have in common."""
        return self._form.source(lsn=lsn, commit_lsn=commit_lsn, xid=xid, ts_us=ts_us)

    def read(self, row: Row, source: bytes) -> Event:
        """Return the event of a row of a copy."""
        return self._event("r", row, self._value(b"r", None, self._form.row(row), source))

    def headers(self, event: Event, position: Position) -> Headers:
        return [
            self._channel,
            _OPERATIONS[event.op],
            (EVENT_ID, position.encoded()),
            *event.headers,
        ]

    def tombstone(self, key: bytes) -> Event:
        """Return what a truncate is for one key, where each row has a record."""
        return Event("t", key, None)

    def truncate(self, source: bytes) -> Event:
        return Event("t", None, self._value(b"t", None, None, source))

    def new_rows(
        self,
        op: str,
        rows: Sequence[Row],
        lsns: Sequence[int],
        event_ids: Sequence[bytes],
        parts: Parts,
        *,
        is_whole: bool,
    ) -> list[record_batch.Row]:
        """Return the records of rows that are inserted, or updated without an old row; no value is left out.

        ``is_whole``: no value is NULL either.
        """
        values = self._form.new_rows(
            op.encode(), rows, lsns, parts, is_whole=is_whole, is_row_only=self._is_row_only
        )
        debezium, at = self._debezium, self._keys
        keys: Iterable[bytes | None]
        if debezium is not None:
            keys = map(debezium.key, rows)
        elif is_whole and len(at) == 1:
            keys = cast("list[bytes]", [row[at[0]] for row in rows])
        else:
            keys = map(self._key, rows)
        channel, operation = self._channel, _OPERATIONS[op]
        times = for_each_row(parts, lambda transaction: transaction.commit_ms)
        return [
            (timestamp_ms, key, value, [channel, operation, (EVENT_ID, event_id)])
            for timestamp_ms, key, value, event_id in zip(times, keys, values, event_ids, strict=True)
        ]

    def events(self, change: Update | Delete | Truncate, source: bytes) -> Iterable[Event]:
        """Return the events of a change; ``source`` is that of its transaction. Rows of a run are ``new_rows``."""
        match change:
            case Update():
                return self._update(change, source)
            case Delete():
                return self._delete(change.old, source, is_key_only=change.is_key_only)
            case Truncate():
                return (self.truncate(source),)

    def _update(self, change: Update, source: bytes) -> Iterator[Event]:
        old, row = change.old, change.row
        if old is not None:
            # The old row, or its key, has values that the new one leaves out.
            row = [
                o if isinstance(n, Unchanged) and o is not None else n for o, n in zip(old, row, strict=True)
            ]
            if self._keys and self._key(old) != self._key(row):
                # A new key is another entity, possibly in another partition.
                yield from self._delete(old, source, is_key_only=change.is_key_only, new=row)
                yield self._new("c", None, row, source, old=old)
                return
        before = None if old is None else self._form.row(old, only_identity=change.is_key_only)
        yield self._new("u", before, row, source)

    def _new(
        self, op: str, before: bytes | None, row: Row, source: bytes, *, old: Row | None = None
    ) -> Event:
        """Return the event of an update, which may lack unchanged large values; ``old`` had another key."""
        unchanged = [
            column.name
            for column, datum in zip(self.relation.columns, row, strict=True)
            if isinstance(datum, Unchanged)
        ]
        if unchanged and self._has_record_per_row:
            raise CdcError(
                f"an update of {self.name} leaves out the value of {', '.join(unchanged)}, which is large "
                f"and did not change, so the row is not whole; ALTER TABLE {self.name} REPLICA IDENTITY FULL, and "
                "run once with --snapshot again"
            )
        value = self._value(op.encode(), before, self._form.row(row), source, unchanged=unchanged)
        event = self._event(op, row, value, "__debezium.oldkey", old)
        if unchanged and self._debezium is not None:
            return event._replace(headers=(*event.headers, ("unchanged", encode_json(unchanged))))
        return event

    def _event(
        self, op: str, row: Row, value: bytes | None, header: str = "", other: Row | None = None
    ) -> Event:
        """Return the event of a row; Debezium names the key that the ``other`` row had, or has, in a header."""
        if self._debezium is None:
            return Event(op, self._key(row), value)
        headers = () if other is None else ((header, self._debezium.plain_key(other)),)
        return Event(op, self._debezium.key(row), value, self.fallback, headers)

    def _delete(
        self, old: Row, source: bytes, *, is_key_only: bool, new: Row | None = None
    ) -> Iterator[Event]:
        """Yield the events of a deleted row; ``new`` has another key and takes its place."""
        if not self._is_row_only:
            before = self._form.row(old, only_identity=is_key_only)
            value = self._value(b"d", before, None, source)
            yield self._event("d", old, value, "__debezium.newkey", new)
        if self._with_tombstones:
            event = self._event("d", old, None, "__debezium.newkey", new)
            # A tombstone without a key would say nothing.
            if event.key is not None:
                yield event

    def _key(self, row: Row) -> bytes:
        keys = self._keys
        if len(keys) == 1:
            datum = row[keys[0]]
            return datum if isinstance(datum, bytes) else self.fallback
        if not keys:
            return self.fallback
        return b"{%s}" % b",".join(self._fields[index] + self._json(index, row[index]) for index in keys)

    def _json(self, index: int, datum: object) -> bytes:
        return self._encoders[index](datum) if isinstance(datum, bytes) else b"null"

    def _value(
        self,
        op: bytes,
        before: bytes | None,
        after: bytes | None,
        source: bytes,
        *,
        unchanged: Sequence[str] = (),
    ) -> bytes:
        if self._is_row_only:
            # A delete and a truncate are tombstones.
            assert after is not None
            return self._form.record(after)
        return self._form.envelope(op, before, after, source, unchanged)
