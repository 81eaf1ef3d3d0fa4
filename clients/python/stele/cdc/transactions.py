"""Messages of the stream → events, transaction by transaction in commit order."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice, pairwise
from typing import Any

from ..errors import AuthorizationError, InvalidRequestError, RecordTooLargeError
from .context import RunContext
from .copying.beside import MARK
from .copying.copies import Copies
from .decoding.notation import lsn_text, split_name
from .decoding.pgoutput import (
    UNCHANGED,
    Begin,
    Commit,
    Delete,
    LogicalMessage,
    Message,
    Relation,
    StreamAbort,
    StreamCommit,
    StreamStart,
    Truncate,
    Update,
    begins_of,
    decode,
)
from .decoding.runs import Run, change_of, relation_of, rows_of
from .errors import CdcError, Stopped, StreamedMessageError
from .postgres.feedback import Feedback
from .records.events import EVENT_ID, Event, Position, Table
from .records.forms import Parts, for_each_row
from .records.outbox import PREFIX, RefusedMessageError, outgoing, refused
from .shapes import keys_of, shape_of
from .spool import Spool

logger: logging.Logger = logging.getLogger("stele.cdc")

# Messages handled before the run attends to notifications, flushes and confirmations.
TURN = 500


class Transactions:
    """Owns the table descriptions, open transactions and spools of the stream.

    When ``take`` returns, a committed transaction is in the writer, and
    ``Feedback.handled_lsn`` is past it.
    """

    def __init__(self, context: RunContext, copies: Copies, feedback: Feedback) -> None:
        self._context = context
        self._status = context.status
        self._copies = copies
        self._feedback = feedback
        # None for a table that is not followed.
        self._tables: dict[int, Table | None] = {}
        self._spools: dict[int, Spool] = {}
        self._spool: Spool | None = None
        self._transaction: Begin | None = None
        self._last_change_lsn = -1
        self._number = 0
        # Changes that wait for the message that does not belong to them.
        self.run: Run = Run()

    @property
    def is_between(self) -> bool:
        """Whether no transaction is being received; some may be spooled and incomplete."""
        if self.run.head is not None:
            return len(self.run.begins) < len(self.run.ends)
        return self._transaction is None and self._spool is None

    def close(self) -> None:
        for spool in self._spools.values():
            spool.close()

    def take(self, lsn: int, payload: bytes) -> None:
        """Handle one message.

        Raises:
            Stopped, CdcError, Interrupted, SteleClientError
            OSError: the spool's disk is full.
        """
        self.end_run()
        if self._spool is not None:
            if payload[:1] == b"E":
                self._spool = None
            else:
                self._spool.append(lsn, payload)
            return
        if self.run.begin(lsn, payload):
            return
        message = decode(payload)
        match message:
            case Begin():
                self._begin(message)
            case Commit():
                self._commit(message.end_lsn)
            case StreamStart(xid=xid):
                self._spool = self._spools.get(xid)
                if self._spool is None:
                    self._spool = self._spools[xid] = Spool(self._context.options.spool_dir)
            case StreamAbort(xid=xid, sub_xid=sub_xid):
                if sub_xid != xid:
                    if xid in self._spools:
                        self._spools[xid].abort(sub_xid)
                elif (spool := self._spools.pop(xid, None)) is not None:
                    spool.close()
            case StreamCommit():
                self._replay(message)
            case _:
                self._apply(lsn, message)

    def _begin(self, begin: Begin) -> None:
        self._transaction = begin
        self._last_change_lsn, self._number = -1, 0

    def _commit(self, end_lsn: int) -> None:
        transaction = self._transaction
        self._transaction = None
        self._status.transactions += 1
        if transaction is not None:
            self._status.commit_ms = transaction.commit_ms
            self._copies.beside.committed(transaction.xid)
            self._end(transaction, end_lsn)
        self._feedback.handled_lsn = end_lsn

    def _end(self, transaction: Begin, end_lsn: int) -> None:
        self._feedback.handled_lsn = end_lsn
        if self._context.writer.end_transaction(transaction.commit_lsn, transaction.commit_ms):
            self._context.flush()
            # While more is always waiting, hardly anything else comes between two transactions.
            self._feedback.confirm(force=False)

    def _replay(self, commit: StreamCommit) -> None:
        """Apply a spooled transaction, at its place in commit order."""
        if self._context.writer.holds_ended:
            # It may be large, so it shares no transaction of the log with those before it.
            self._context.flush()
        self._begin(Begin(commit.commit_lsn, commit.commit_us, commit.xid))
        spool = self._spools.pop(commit.xid, None)
        if spool is not None:
            try:
                for lsn, payload in spool.messages():
                    if self.run.goes_on(lsn, payload):
                        continue
                    self.end_run()
                    self._replay_message(lsn, payload, spool)
                    self._context.writer.send_if_full()
                    if self._context.stopping.is_set():
                        raise Stopped
                    self._feedback.keep_alive()
                self.end_run()
            finally:
                spool.close()
        self._commit(commit.end_lsn)

    def _replay_message(self, lsn: int, payload: bytes, spool: Spool) -> None:
        if self.run.begin(lsn, payload, in_stream=True):
            if spool.is_aborted(self.run.xid):
                self.run = Run()
            return
        message = decode(payload, in_stream=True)
        if isinstance(message, LogicalMessage):
            self._check_certain(message, spool)
        if not spool.is_aborted(getattr(message, "xid", None)):
            self._apply(lsn, message)

    def _apply(self, lsn: int, message: Message) -> None:
        match message:
            case Update() | Delete():
                self._change(lsn, message.relation_id, message)
            case Relation():
                self._learn(lsn, message)
            case LogicalMessage():
                self._pass_on(message)
            case Truncate():
                for relation_id in message.relation_ids:
                    self._change(lsn, relation_id, message)
            case _:
                # An origin, a type or a message.
                pass

    def _check_certain(self, message: LogicalMessage, spool: Spool) -> None:
        """Raise StreamedMessageError if a streamed message may have been rolled back.

        PostgreSQL streams it with the id of the whole transaction, even if a subtransaction wrote it.
        """
        if spool.has_aborted and message.prefix.startswith(PREFIX):
            raise StreamedMessageError(
                f"a transaction with the message at {lsn_text(message.end_lsn)} has subtransactions that were rolled back, "
                "and the stream does not tell whether the message is of one of them; it is read again after its commit"
            )

    def _pass_on(self, message: LogicalMessage) -> None:
        """Write a message to the topic that it names, or the part of a copy whose place it is."""
        if message.prefix == MARK + self._context.options.slot and self._transaction is not None:
            self._copies.beside.marked(message, self._transaction)
            return
        if not message.prefix.startswith(PREFIX) or not self._context.options.has_messages:
            return
        # Its LSN is that of its end, which may be that of the next change as well.
        lsn = message.end_lsn - 1
        if self._transaction is not None:
            self._write(message, Position(self._transaction.commit_lsn, lsn, 0), self._transaction.commit_ms)
            return
        alone = Begin(lsn, time.time_ns() // 1000, 0)
        self._write(message, Position(lsn, 0, 0), alone.commit_ms)
        self._end(alone, message.end_lsn)

    def _write(self, message: LogicalMessage, position: Position, timestamp_ms: int) -> None:
        context, options = self._context, self._context.options
        # Messages without a key that belong together stay in order.
        together = b"%X" % position.commit_lsn
        try:
            topic, key, value, headers = outgoing(message)
            if (reason := options.refusal_of(topic)) is not None:
                raise RefusedMessageError(reason)
            context.writer.open(topic, configs=options.message_topic_configs)
            context.writer.add(
                topic,
                Event("m", key, value, together),
                [(EVENT_ID, str(position).encode()), *headers],
                timestamp_ms=timestamp_ms,
                position=position,
            )
        except (RefusedMessageError, RecordTooLargeError, InvalidRequestError, AuthorizationError) as error:
            logger.warning(
                "the message at %s is in topic %s, because %s",
                lsn_text(message.end_lsn),
                options.refused_topic,
                error,
            )
            self._status.refused_messages += 1
            context.writer.open(options.refused_topic, partitions=1, configs=options.message_topic_configs)
            for number, (piece, headers) in enumerate(refused(message, str(error))):
                at = position._replace(number=number)
                context.writer.add(
                    options.refused_topic,
                    Event("m", None, piece, together),
                    [(EVENT_ID, str(at).encode()), *headers],
                    timestamp_ms=timestamp_ms,
                    position=at,
                )
        self._status.messages += 1

    def _learn(self, lsn: int, relation: Relation) -> None:
        known = self._tables.get(relation.relation_id)
        name = self._copies.name_of(relation.relation_id)
        if name is None:
            self._tables[relation.relation_id] = None
            return
        schema, table_name = split_name(name)
        relation = replace(relation, schema=schema, table=table_name)
        keys = keys_of(relation, self._context.postgres)
        table = shape_of(relation, keys=keys, context=self._context)
        self._tables[relation.relation_id] = table
        if self._transaction is not None and self._copies.is_streamed(name, self._transaction.commit_lsn):
            self._context.schemas.note(
                relation,
                keys,
                Position(self._transaction.commit_lsn, lsn, 0),
                xid=self._transaction.xid,
                ts_us=self._transaction.commit_us,
            )
        if known is not None and known.relation.columns != relation.columns:
            logger.info(
                "table %s changed; its columns are now %s",
                table.name,
                ", ".join(c.name for c in relation.columns),
            )

    def _events(self, table: Table, change: Any, lsn: int, transaction: Begin) -> Iterable[Event]:
        if isinstance(change, Truncate) and self._context.options.has_record_per_row:
            return map(table.tombstone, self._context.writer.keys_of_rows(table.topic))
        source = table.source(
            lsn=lsn,
            commit_lsn=transaction.commit_lsn,
            xid=transaction.xid,
            ts_us=transaction.commit_us,
        )
        return table.events(change, source)

    def end_run(self) -> None:
        """Write the changes of the run, if there is one, and end the transactions that end in it."""
        if self.run.head is None:
            return
        run, self.run = self.run, Run()
        head, lsns, payloads, ends = run.head, run.lsns, run.payloads, run.ends
        assert head is not None
        _, first = self._table(relation_of(head))
        transactions = [first, *begins_of(run.begins)]
        if ends:
            whole, counts = ends[-1], [end - start for start, end in pairwise((0, *ends))]
            self._write_run(
                head, lsns[:whole], payloads[:whole], list(zip(transactions, counts, strict=False))
            )
            for transaction in transactions[: len(ends) - 1]:
                self._copies.beside.committed(transaction.xid)
            self._status.transactions += len(ends) - 1
            self._transaction = transactions[len(ends) - 1]
            commit = decode(run.commit)
            assert isinstance(commit, Commit)
            self._commit(commit.end_lsn)
            if len(transactions) == len(ends):
                return
            self._begin(transactions[-1])
            lsns, payloads = lsns[whole:], payloads[whole:]
        if lsns:
            self._write_run(head, lsns, payloads, [(transactions[-1], len(lsns))])

    def _write_run(self, head: bytes, lsns: Sequence[int], payloads: Sequence[bytes], parts: Parts) -> None:
        """Write changes of a run, of which each part has those of a transaction."""
        table, _ = self._table(relation_of(head))
        if table is None:
            return
        if not self._copies.is_streamed(table.name, parts[0][0].commit_lsn):
            # The copy of the table has the first ones.
            parts = [part for part in parts if self._copies.is_streamed(table.name, part[0].commit_lsn)]
            copied = len(lsns) - sum(count for _, count in parts)
            lsns, payloads = lsns[copied:], payloads[copied:]
            if not lsns:
                return
        rows, is_whole = rows_of(head, payloads)
        is_update = head[:1] == b"U"
        if is_update and not is_whole and any(UNCHANGED in row for row in rows):
            changes = zip(lsns, payloads, strict=True)
            for transaction, count in parts:
                self._transaction = transaction
                for lsn, payload in islice(changes, count):
                    self._change(lsn, relation_of(head), change_of(head, payload))
            return
        first, event_ids = self._event_ids(parts, lsns)
        records = table.new_rows("u" if is_update else "c", rows, lsns, event_ids, parts, is_whole=is_whole)
        if self._copies.beside.is_copying:
            keys = (key for _, key, _, _ in records)
            for transaction, count in parts:
                of_transaction = list(islice(keys, count))
                if self._copies.beside.is_changed(table.name, transaction.xid):
                    self._copies.beside.changed(of_transaction)
        self._context.writer.add_rows(
            table.topic,
            records,
            first=first,
            instead_of_key=table.fallback,
            header_bytes=table.header_bytes,
        )
        self._status.table(table.name).changes += len(records)

    def _event_ids(self, parts: Parts, lsns: Sequence[int]) -> tuple[Position, list[bytes]]:
        """Return the position of the first of changes with one event each, and the ids of all."""
        last, number = self._last_change_lsn, self._number
        first = Position(parts[0][0].commit_lsn, lsns[0], number if lsns[0] == last else 0)
        event_ids: list[bytes] = []
        begins = for_each_row(parts, lambda transaction: b"%X-" % transaction.commit_lsn)
        for begin, lsn in zip(begins, lsns, strict=True):
            # No two transactions have changes with one LSN.
            if lsn != last:
                last, number = lsn, 0
            event_ids.append(b"%s%X-%d" % (begin, lsn, number))
            number += 1
        self._last_change_lsn, self._number = last, number
        return first, event_ids

    def _table(self, relation_id: int) -> tuple[Table | None, Begin]:
        """Return the table of changes, None if it is not followed, and their transaction."""
        transaction = self._transaction
        if relation_id not in self._tables or transaction is None:
            raise CdcError(
                "PostgreSQL sent a change without its table or transaction; please report this bug"
            )
        return self._tables[relation_id], transaction

    def _change(self, lsn: int, relation_id: int, change: Any) -> None:
        table, transaction = self._table(relation_id)
        if table is None or not self._copies.is_streamed(table.name, transaction.commit_lsn):
            return
        if lsn != self._last_change_lsn:
            self._last_change_lsn, self._number = lsn, 0
        events = self._events(table, change, lsn, transaction)
        if self._copies.beside.is_changed(table.name, transaction.xid):
            events = list(events)
            # A truncate is of all rows, whatever it is written as.
            keys = [None] if isinstance(change, Truncate) else [event.key for event in events]
            self._copies.beside.changed(keys)
        for count, event in enumerate(events, 1):
            position = Position(transaction.commit_lsn, lsn, self._number)
            self._number += 1
            self._context.writer.add(
                table.topic,
                event,
                table.headers(event, position),
                timestamp_ms=transaction.commit_ms,
                position=position,
            )
            if not count % TURN:
                # A truncate may be many events.
                if self._context.must_flush:
                    self._context.flush()
                self._feedback.keep_alive()
        self._status.table(table.name).changes += 1
