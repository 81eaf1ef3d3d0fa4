"""Copies of tables, and the state of the tables of a run."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from typing import Literal

from .. import state as state_of
from ..context import RunContext
from ..decoding.notation import split_name
from ..decoding.pgoutput import Row
from ..decoding.snapshot import parse_line
from ..errors import CdcError, Interrupted, Stopped
from ..postgres.catalog import TableInfo
from ..postgres.connection import Connection
from ..postgres.replication import Part, copy_rows, snapshot_connection
from ..records.events import Event, Position, Table
from ..shapes import shape_of
from ..state import ASK, COPY
from .beside import SINCE, CopiesBeside
from .published import Published, attached_partitions, interruption, published_tables

logger: logging.Logger = logging.getLogger("stele.cdc")

# Rows that one query of a copy reads, in the order of an index.
_PART_ROWS = 100_000


class Copies:
    """Decides which tables to copy, copies them, and records their state.

    ``again`` has the tables to copy once more. A name is removed when its copy is done,
    so that a retry does not copy it again.
    """

    def __init__(
        self,
        context: RunContext,
        state: state_of.State,
        notebook: state_of.Notebook,
        again: set[str],
    ) -> None:
        self._context = context
        self._options = context.options
        self._status = context.status
        self._postgres = context.postgres
        self._state = state
        self._notebook = notebook
        self._again = again
        self._wanted = context.options.full_names
        self._published: dict[str, Published] = {}
        # The followed tables by OID, under which the stream names them whatever they were called.
        self._names: dict[int, str] = {}
        # Those whose topic was deleted since it was noted, and is not made again yet.
        self._without_topic: set[str] = set()
        # Changes before this LSN are in the copy, so the stream's are dropped.
        self._copied_lsn: dict[str, int] = {}
        self._may_go_on = False
        self.beside: CopiesBeside = CopiesBeside(context, notebook, on_end=self._end)

    # ── before the stream ──

    def begin(self, *, may_go_on: bool) -> list[str]:
        """Record the tables that are no longer followed; return those that must be copied.

        ``may_go_on``: the slot has all changes since the copies of earlier runs began.

        Raises:
            CdcError, Interrupted, SteleClientError
        """
        self._may_go_on = may_go_on and self._is_resumable
        # Before any snapshot: what is altered after this is noticed, at the latest by the next run.
        self._published = published_tables(self._postgres, self._options)
        self._names = {table.table_id: name for name, table in self._published.items()}
        self._status.follows(self._wanted)
        self._leave(set(self._state.tables) - self._wanted)
        topics = self._context.writer.existing_topics()
        for name in sorted(self._wanted):
            known = self._state.tables.get(name)
            if known is None and self._topic(name) in topics:
                self._context.writer.check_owner(self._topic(name))
            elif known is not None and known.has_topic and self._topic(name) not in topics:
                self._without_topic.add(name)
        self._report_gaps()
        return [name for name in sorted(self._wanted) if self._must_copy(name)]

    def stored_lsn(self) -> int:
        """Return the largest commit LSN of the rows and changes that earlier runs stored.

        Raises SteleClientError.
        """
        known = [name for name in sorted(self._wanted) if name in self._state.tables]
        stored_lsn = self._context.writer.stored_lsn(
            self._topic(name) for name in known if name not in self._without_topic
        )
        return max(stored_lsn, *(self._state.tables[name].lsn - 1 for name in known), 0)

    def followed(self, *, before_lsn: int = 2**64) -> list[str]:
        """Return the tables of which earlier runs have written all changes, from a copy before an LSN on."""
        return [
            name
            for name in sorted(self._wanted)
            if self._is_followed(name) and self._state.tables[name].lsn < before_lsn
        ]

    def repeat(self, reason: str) -> list[str]:
        """Return what to copy if all tables that were followed may lack changes.

        Raises CdcError if they must not be copied.
        """
        followed = self.followed()
        if followed and self._options.snapshot == "never":
            raise CdcError(
                f"{reason}; run once with --snapshot again, which copies the tables again, or once without "
                f"{', '.join(followed)} in --tables, to continue without these changes"
            )
        if followed:
            logger.warning("%s; copied again: %s", reason, ", ".join(followed))
            self._again.update(followed)
        return [name for name in sorted(self._wanted) if self._must_copy(name)]

    def copy(self, names: list[str], lsn: int, snapshot: str) -> None:
        """Copy tables at ``snapshot``, which was exported at ``lsn``.

        Raises:
            Stopped, CdcError, Interrupted, SteleClientError
        """
        self._status.state = "copying"
        # Before the copies lock them: a query that reads them may wait for a session that waits for such a lock.
        tables = {name: self._postgres.table(*split_name(name)) for name in names}
        with snapshot_connection(self._options.dsn, snapshot) as connection:
            for name, table in tables.items():
                has_rows = name in self._state.tables
                # What was copied before is of another snapshot.
                self._notebook.write(COPY + name, None, now_ms=_now_ms())
                self._note(name, "begun", lsn)
                try:
                    self._copy(connection, table, lsn, is_repeated=has_rows)
                except CdcError as error:
                    if self._postgres.table(*split_name(name)) == table:
                        raise
                    raise Interrupted(f"{name} was altered when its copy began: {error}") from error
                self._context.writer.open(self._topic(name))
                self._without_topic.discard(name)
                self._notebook.write(COPY + name, None, now_ms=_now_ms())
                self._note(name, "done", lsn)
                self._again.discard(name)
                logger.info("copied %s: %d rows", name, self._status.table(name).copied)

    def copy_beside(self, names: list[str], added: Collection[str], lsn: int) -> list[str]:
        """Begin to copy tables that were added while the connector ran beside the stream, which has their changes.

        Of ``names`` return those that must be copied before the stream. ``lsn`` is where the stream begins.

        Raises:
            CdcError, Interrupted, SteleClientError
        """
        rest: list[str] = []
        for name in names:
            table = self._postgres.table(*split_name(name))
            if name not in added or not self._may_go_on or not table.has_keys():
                rest.append(name)
                continue
            self._begin_copy(table, lsn, is_repeated=name in self._state.tables)
            self._state.copying[COPY + name] = copying = state_of.Copying(name, lsn)
            self._notebook.write(COPY + name, copying, now_ms=_now_ms())
            self._note(name, "begun", lsn)
            self._again.discard(name)
            self._without_topic.discard(name)
        return rest

    def _report_gaps(self) -> None:
        """Log the tables that are copied again because changes are missing.

        Raises CdcError if they must not be copied.
        """
        for name in sorted(self._wanted):
            known = self._state.tables.get(name)
            if known is None or known.copy != "done":
                continue
            reason = self._gap(name, known)
            if reason is None:
                self._report_attached(name, known)
            elif self._options.snapshot == "never":
                raise CdcError(
                    f"{reason}; run once with --snapshot again, which copies it, or once without {name} in --tables, "
                    "to continue without these changes"
                )
            else:
                logger.warning("%s; it is copied again", reason)

    def _report_attached(self, name: str, known: state_of.TableState) -> None:
        for partition in attached_partitions(self._postgres, known, self._published[name]):
            logger.warning(
                "partition %s was attached to %s; rows that it had before are not in the topic: if it had any, run "
                "once with --snapshot again",
                partition,
                name,
            )

    def finish(self, lsn: int) -> None:
        """Record that all tables are followed; those without a copy from ``lsn`` on."""
        for name in sorted(self._wanted):
            # Also that of an empty table: from now on a topic that is missing was deleted.
            self._context.writer.open(self._topic(name))
            if self._goes_on(name):
                continue
            if not self._is_followed(name):
                self._note(name, "done", lsn)
            elif not self._is_noted(name):
                self._note(name, "done", self._state.tables[name].lsn)
        self._copied_lsn = {name: self._state.tables[name].lsn for name in self._wanted}
        self.beside.begin(
            {
                key: copy
                for key, copy in self._state.copying.items()
                if key.startswith(ASK) or self._goes_on(copy.table)
            }
        )

    def _end(self, name: str) -> None:
        """Record that a first copy that went on beside the stream is whole."""
        self._note(name, "done", self._state.tables[name].lsn)

    def _leave(self, names: set[str]) -> None:
        """Record that tables are not followed, so that they are copied if they return."""
        for name in sorted(names):
            if self._state.tables[name].copy != "left":
                self._note(name, "left", self._state.tables[name].lsn)

    def _is_followed(self, name: str) -> bool:
        """Return whether earlier runs have written all changes of this same table."""
        known = self._state.tables.get(name)
        return (
            known is not None
            and (known.copy == "done" or self._goes_on(name))
            and self._gap(name, known) is None
        )

    def _goes_on(self, name: str) -> bool:
        """Return whether the copy of an earlier run goes on beside the stream."""
        known, copy = self._state.tables.get(name), self._state.copying.get(COPY + name)
        return (
            self._may_go_on
            and known is not None
            and copy is not None
            and known.copy == "begun"
            and copy.lsn == known.lsn
            and name not in self._again
        )

    @property
    def _is_resumable(self) -> bool:
        """Whether a copy can go on: what of it is stored is known only with transactions."""
        return (
            self._postgres.server_version >= SINCE
            and self._options.has_messages
            and self._options.snapshot != "never"
            and self._context.writer.is_transactional
        )

    def _gap(self, name: str, known: state_of.TableState) -> str | None:
        """Return why the topic may lack rows or changes of before this run, if it may."""
        if name in self._without_topic:
            return f"topic {self._topic(name)} was deleted, and with it the rows of {name}"
        return interruption(name, known, self._published.get(name), self._options)

    def _topic(self, name: str) -> str:
        return self._options.topic_of(*split_name(name))

    def _is_noted(self, name: str) -> bool:
        known, now = self._state.tables[name], self._published[name]
        noted = (known.published, known.partitions, known.keys, known.has_topic)
        return noted == (now.mark, now.partitions, now.keys, self._keeps_topics and known.copy == "done")

    def _must_copy(self, name: str) -> bool:
        if self._options.snapshot == "never":
            return False
        return not self._is_followed(name) or name in self._again

    @property
    def _keeps_topics(self) -> bool:
        """Whether a deleted topic is a gap; those in memory keep no rows anyway."""
        return self._options.storage == "disk"

    def _note(self, name: str, copy: Literal["begun", "done", "left"], lsn: int) -> None:
        now = self._published.get(name)
        has_topic = copy == "done" and self._keeps_topics
        noted = (
            state_of.TableState(copy, lsn)
            if now is None
            else state_of.TableState(
                copy, lsn, now.table_id, now.mark, dict(now.partitions), now.keys, has_topic
            )
        )
        self._notebook.note(f"table:{name}", noted, now_ms=_now_ms())
        self._state.tables[name] = noted

    def _begin_copy(
        self, info: TableInfo, lsn: int, *, is_repeated: bool
    ) -> tuple[Table, bytes, Callable[[Event], None]]:
        """Return the table, the source of its rows, and what stores them, after the start of a repeated copy is stored."""
        now_ms = _now_ms()
        shape = shape_of(info.relation(), keys=info.keys, context=self._context)
        self._context.schemas.note(
            shape.relation, info.keys, Position(lsn, 0, 0), xid=None, ts_us=now_ms * 1000
        )
        source = shape.source(lsn=lsn, commit_lsn=lsn, xid=None, ts_us=now_ms * 1000)
        numbers = iter(range(2**62))

        def store(event: Event) -> None:
            # A position before every change of the stream that the copy lacks.
            position = Position(lsn, 0, next(numbers))
            self._context.writer.add(
                shape.topic, event, shape.headers(event, position), timestamp_ms=now_ms, position=None
            )

        if is_repeated:
            # Rows of an interrupted copy may be deleted by now; consumers must start over here.
            if self._options.has_record_per_row:
                for key in self._context.writer.keys_of_rows(shape.topic):
                    store(shape.tombstone(key))
                    self._flush_if_due()
            else:
                store(shape.truncate(source))
        return shape, source, store

    def _copy(self, connection: Connection, info: TableInfo, lsn: int, *, is_repeated: bool) -> None:
        shape, source, store = self._begin_copy(info, lsn, is_repeated=is_repeated)
        counts = self._status.table(info.name)
        counts.copied, counts.is_copying = 0, True
        counts.expected = self._postgres.estimated_rows(info.schema, info.table)
        has_parts = self._is_resumable and info.has_keys()
        last: Row = []

        def row(line: bytes) -> None:
            nonlocal last
            last = parse_line(line)
            store(shape.read(last, source))
            counts.copied += 1
            if has_parts and self._context.must_flush:
                # Together with these rows.
                copying = state_of.Copying(info.name, lsn, info.key_of(last), copied=counts.copied)
                self._notebook.write(COPY + info.name, copying, now_ms=_now_ms())
                self._again.discard(info.name)
            self._flush_if_due()

        if not has_parts:
            copy_rows(connection, info, row)
        before = -_PART_ROWS
        while has_parts and counts.copied - before >= _PART_ROWS:
            before = counts.copied
            after = info.key_of(last) if last else ()
            copy_rows(connection, info, row, Part(limit=_PART_ROWS, after=after))
        self._context.flush()
        counts.is_copying = False

    def _flush_if_due(self) -> None:
        if self._context.must_flush:
            if self._context.stopping.is_set():
                raise Stopped
            self._context.flush()

    # ── beside the stream ──

    def name_of(self, table_id: int) -> str | None:
        """Return the name under which a table is followed; None if it is not.

        By its OID: a table that was renamed for a while is the same table.
        """
        return self._names.get(table_id)

    def is_streamed(self, name: str, commit_lsn: int) -> bool:
        """Return whether to store a change of a followed table: its copy lacks it."""
        return commit_lsn >= self._copied_lsn.get(name, 0)

    def check(self) -> None:
        """Raise CdcError for a table of which changes are missing, or would be."""
        self._published = published_tables(self._postgres, self._options)
        for name in sorted(self._wanted):
            known = self._state.tables[name]
            reason = interruption(name, known, self._published.get(name), self._options)
            if reason is not None:
                raise CdcError(
                    f"{reason}; correct --tables, or the publication, and start again, which copies the table again"
                )
            if not self._is_noted(name):
                self._postgres.check_tables()
                self._report_attached(name, known)
                self._note(name, known.copy, known.lsn)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
