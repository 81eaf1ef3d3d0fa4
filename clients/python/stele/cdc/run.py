"""One attempt of the connector, until its first failure or a stop."""

from __future__ import annotations

import logging
import math
import select
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NoReturn

from ..client import Client
from ..errors import InvalidRequestError, SteleClientError
from ..wire.cdc_requests import Request, full_name
from . import state as state_of
from .context import RunContext
from .copying.copies import Copies
from .decoding.notation import lsn_text, quoted_name, split_name
from .errors import CdcError, Interrupted, Stopped, TableLockedError, TablesRequestedError
from .gaps import Gaps
from .log_writer import LogWriter
from .options import CdcOptions
from .postgres.catalog import Postgres, SlotInfo
from .postgres.connection import translated
from .postgres.feedback import CONFIRM_S, Feedback
from .postgres.replication import Stream
from .postgres.slot_guard import SlotGuard
from .records.notifications import notified
from .registered import TableForms
from .requests import Requests, applied
from .schema_log import SchemaLog
from .status import Status
from .transactions import TURN, Transactions

logger: logging.Logger = logging.getLogger("stele.cdc")

# Interval of lag measurements and table checks, and the longest wait for a message.
_LAG_S = 2.0
# Of a copy that waits until a transaction has ended.
_RETRY_S = 0.2
# After a flush of many events more will come: those of this time are stored together, which costs the broker less.
_LINGER_S = 0.01
_MANY_EVENTS = 100


class Run:
    """Sets up slot and copies, then follows the stream and the notifications.

    ``Copies`` owns the state of the tables, ``Transactions`` the open transactions of the
    stream, and ``Feedback`` the stream and its confirmed position.
    """

    def __init__(
        self,
        options: CdcOptions,
        status: Status,
        postgres: Postgres,
        client: Client,
        forms: TableForms,
        stopping: threading.Event,
        wake: int,
        again: set[str],
        *,
        guard: SlotGuard,
        is_streaming: bool = True,
    ) -> None:
        """``is_streaming``: read transactions before they commit. ``wake``: a file descriptor, readable once ``stopping`` is set.

        Raises as ``go``.
        """
        self._options = options
        self._status = status
        self._postgres = postgres
        self._client = client
        self._stopping = stopping
        self._wake = wake
        self._is_streaming = is_streaming
        self._guard = guard
        self._feedback = Feedback(status, keep_alive_s=postgres.keep_alive_s())
        self._flushed_s = 0.0
        self._flushed = self._written = 0
        self._measured_s = -math.inf
        self._standbys: str | None = None
        origin = state_of.Origin(*postgres.identity())
        state = state_of.load(client, options.state_topic)
        # Before fencing: a connector with the wrong database must not stop the right one.
        self._check_origin(state.origin, origin)
        self._check_value(state)
        was_transactional = None if state.mode is None else state.mode.transactions
        is_transactional = options.is_transactional(
            is_new=state.origin is None, was_transactional=was_transactional
        )
        self._requests = Requests(client, options.requests_topic)
        self._asked: Sequence[Request] = ()
        self._dropped = set[str]()
        self._options = options = self._with_requests(options)
        postgres.follow(options)
        forms.follow(options)
        self._writer = self._begin_writer(
            origin, is_transactional=is_transactional, was_transactional=was_transactional
        )
        # Earlier runs can no longer change it.
        state = state_of.load(client, options.state_topic)
        notebook = state_of.Notebook(self._writer, options.state_topic)
        is_new = state.origin is None
        if is_transactional != bool(was_transactional) or (is_new and options.format != "json"):
            # Before the origin, which says that this connector is not new.
            mode = state_of.Mode(is_transactional, options.value, options.format)
            notebook.write("mode", mode, now_ms=_now_ms())
        if state.origin is None:
            notebook.write("origin", origin, now_ms=_now_ms())
        self._writer.flush()
        self._context = RunContext(
            options=options,
            status=status,
            postgres=postgres,
            writer=self._writer,
            forms=forms,
            schemas=SchemaLog(client, self._writer, postgres, options),
            stopping=stopping,
        )
        self._copies = Copies(self._context, state, notebook, again)
        self._gaps = Gaps(self._context, notebook, self._copies, state.slot)
        self._transactions = Transactions(self._context, self._copies, self._feedback)

    def _with_requests(self, options: CdcOptions) -> CdcOptions:
        """Return the options with the tables that were requested, except those that cannot be followed."""
        if not options.has_slot:
            return options
        requests = self._requests.read()
        tables, added = applied(options.tables, requests)
        self._asked = [one for one in requests if one.action == "copy"]
        self._dropped = {one.table for one in requests if one.action == "drop"} - set(map(full_name, tables))
        refused = dict[str, str]()
        topics = {options.topic_of(*split_name(name)): name for name in tables if name not in added}
        for name in added:
            other = topics.setdefault(options.topic_of(*split_name(name)), name)
            try:
                if other != name:
                    raise CdcError(f"{other} has the same topic")
                self._postgres.check_tables([name])
                self._postgres.add_to_publication(*split_name(name))
            except CdcError as error:
                # It must not stop those that are followed.
                logger.error("%s was requested, and cannot be followed: %s", name, error)
                refused[name] = str(error)
        self._status.refused_tables = refused
        return replace(
            options,
            tables=tuple(name for name in tables if name not in refused),
            added=tuple(name for name in added if name not in refused),
        )

    def _leave_publication(self) -> None:
        """Remove tables that were to be left from the publication, after their state says so."""
        for name in sorted(self._dropped):
            try:
                self._postgres.drop_from_publication(*split_name(name))
            except CdcError as error:
                logger.warning("%s is left, and stays in the publication: %s", name, error)

    def _check_origin(self, known: state_of.Origin | None, here: state_of.Origin) -> None:
        if known is not None and known != here:
            raise CdcError(
                f"topic {self._options.state_topic} belongs to database {known.database} of another PostgreSQL "
                f"(system {known.system}, not {here.database} of {here.system}); choose another --prefix"
            )

    def _check_value(self, state: state_of.State) -> None:
        known = "envelope" if state.mode is None else state.mode.value
        if state.origin is not None and known != self._options.value:
            raise CdcError(
                f"the topics of prefix {self._options.prefix} have values of the form {known!r}; go on with --value "
                f"{known}, or choose another --prefix and --slot"
            )
        known = "json" if state.mode is None else state.mode.format
        if state.origin is not None and known != self._options.format:
            raise CdcError(
                f"the topics of prefix {self._options.prefix} have values of the format {known}; go on with --format "
                f"{known}, or choose another --prefix and --slot"
            )

    def _begin_writer(
        self, origin: state_of.Origin, *, is_transactional: bool, was_transactional: bool | None
    ) -> LogWriter:
        options = self._options
        try:
            return LogWriter(
                self._client,
                name=options.producer_name(origin.system, origin.database),
                version=self._postgres.run_number(),
                partitions=options.partitions,
                configs=options.topic_configs,
                patience_s=options.patience_s,
                pause=self._pause,
                positions_topic=options.positions_topic,
                was_transactional=was_transactional,
                transaction_timeout_s=options.transaction_timeout if is_transactional else None,
            )
        except InvalidRequestError as error:
            raise CdcError(
                f"{error}. Versions are timelines and transaction ids of PostgreSQL: an old primary that came back is not "
                "followed; if it was restored from a backup, start again with another --prefix"
            ) from error

    def _pause(self, seconds: float) -> None:
        """Wait before a retry while the broker is down, and keep the stream alive."""
        if self._stopping.wait(seconds):
            raise Stopped
        self._feedback.repeat()

    def go(self) -> None:
        """Set up, copy, and follow the changes.

        Raises:
            Stopped, Interrupted, CdcError, SteleClientError
        """
        try:
            if self._options.has_slot:
                self._prepare()
            if self._options.channels:
                self._listen()
            self._status.state = "streaming"
            self._follow()
        except CdcError as error:
            if (
                "publication" in str(error)
                and "does not exist" in str(error)
                and self._postgres.has_publication()
            ):
                raise CdcError(
                    f"publication {self._options.publication} was created after changes that are still to be "
                    f"read, and PostgreSQL decodes those without it: SELECT pg_drop_replication_slot('{self._options.slot}'), "
                    "and run once with --snapshot again"
                ) from error
            raise
        finally:
            self._feedback.close()
            self._copies.beside.close()
            self._transactions.close()
            self._abandon()

    def _abandon(self) -> None:
        """Abort a transaction that is not whole; if that fails, the next run or the broker does it."""
        try:
            self._writer.close()
        except SteleClientError as error:
            logger.warning("an open transaction could not be aborted: %s", error)

    # ── slot and copies ──

    def _prepare(self) -> None:
        options, postgres, copies, gaps = self._options, self._postgres, self._copies, self._gaps
        postgres.check_settings()
        postgres.check_tables()
        postgres.ensure_publication()
        slot = postgres.slot()
        todo = copies.begin(may_go_on=slot is not None and not slot.is_lost)
        self._leave_publication()
        reason = None if slot is None else gaps.lack(slot.confirmed_lsn)
        if reason is not None:
            todo = copies.repeat(reason)
        stream = self._feedback.stream = Stream(options)
        stream.check_server(postgres.server())
        gaps.check(stream, slot, todo)
        if slot is not None and slot.is_lost:
            postgres.drop_slot()
            slot = None
        if slot is None:
            logger.info("creating slot %s: PostgreSQL waits for all open transactions to end", options.slot)
            lsn, snapshot = stream.create_slot()
            logger.info("created slot %s at %s", options.slot, lsn_text(lsn))
            self._status.confirmed_lsn = lsn
            gaps.note_first()
            if todo:
                copies.copy(todo, lsn, snapshot)
        else:
            self._status.confirmed_lsn = slot.confirmed_lsn
            self._let_fail_over(stream, slot)
            if reason is None:
                gaps.note_first()
            # What a failover has taken back must be gone before the stream goes on.
            todo = copies.copy_beside(todo, () if gaps.has_gap else options.added, slot.confirmed_lsn)
            if todo:
                # A temporary slot, whose snapshot is exact to the transaction.
                exporting = Stream(options)
                try:
                    logger.info("creating a snapshot: PostgreSQL waits for all open transactions to end")
                    lsn, snapshot = exporting.create_slot(temporary=True)
                    copies.copy(todo, lsn, snapshot)
                finally:
                    exporting.close()
        copies.finish(self._status.confirmed_lsn)
        copies.beside.ask(self._asked)
        # What this run confirms is known when it ends.
        gaps.finish(self._status.confirmed_lsn)
        stream.start(
            postgres.server_version,
            keep_alive_s=self._feedback.keep_alive_s,
            is_streaming=self._is_streaming,
        )
        postgres.streaming_by(stream.pid)

    def _let_fail_over(self, stream: Stream, slot: SlotInfo) -> None:
        """Let standbys have a slot that an earlier release, or somebody else, has created."""
        if slot.can_fail_over is not False:
            return
        try:
            stream.let_fail_over()
            logger.info("slot %s can fail over from now on", self._options.slot)
        except CdcError as error:
            logger.warning("slot %s will be gone after a failover: %s", self._options.slot, error)

    # ── the stream ──

    def _listen(self) -> None:
        for channel in self._options.channels:
            self._postgres.rows(f"LISTEN {quoted_name(channel)}")

    def _follow(self) -> None:
        while True:
            stream, transactions, writer = self._feedback.stream, self._transactions, self._writer
            count = 0
            while count < TURN:
                run = transactions.run
                message = stream.read(run, self._status.confirmed_lsn) if stream is not None else None
                if message is None:
                    break
                count += 1 + len(run.lsns)
                transactions.take(*message)
                if writer.holds_ended and self._feedback.may_confirm_too_much(message[0]):
                    self._context.flush()
                else:
                    writer.send_if_full()
            else:
                self._chores(is_idle=False)
                if self._stopping.is_set():
                    self._end()
                continue
            self._chores(is_idle=True)
            if self._stopping.is_set():
                self._end()
            if self._postgres.connection.notifies:
                # A query has read them together with its result, so the socket will not announce them.
                continue
            waiting = [self._postgres.connection, self._wake, *([stream] if stream is not None else [])]
            must_hurry = self._copies.beside.must_hurry and not self._guard.pauses_copies
            wait_s = _RETRY_S if must_hurry else _LAG_S
            if transactions.run.head is not None or not writer.is_stored:
                wait_s = min(wait_s, max(0.0, self._flush_in_s(is_idle=True)))
            select.select(waiting, [], [], wait_s)

    def _flush_in_s(self, *, is_idle: bool) -> float:
        """Return in how many seconds the next flush is due, if nothing else demands one."""
        pause_s = CONFIRM_S
        if is_idle and self._transactions.is_between:
            # Otherwise the rest of a transaction is on its way.
            pause_s = _LINGER_S if self._flushed >= _MANY_EVENTS else 0.0
        return self._flushed_s + pause_s - time.monotonic()

    def _flush(self, *, is_idle: bool) -> None:
        """Store what was read, and confirm it."""
        # Before the confirmation, because the messages of a run may have smaller LSNs than what is confirmed then.
        self._transactions.end_run()
        self._context.flush()
        self._flushed, self._written = self._writer.written - self._written, self._writer.written
        self._flushed_s = time.monotonic()
        stream = self._feedback.stream
        if is_idle and stream is not None and self._transactions.is_between:
            # No published change is left before it.
            self._feedback.handled_lsn = max(self._feedback.handled_lsn, stream.wal_end)
        self._confirm(force=False)

    def _end(self) -> NoReturn:
        self._transactions.end_run()
        self._context.flush()
        self._note_end()
        self._confirm(force=True)
        raise Stopped

    def _note_end(self) -> None:
        """Record up to where the slot may be confirmed; nothing is read after this."""
        stream = self._feedback.stream
        if stream is not None and self._writer.is_stored:
            stored_lsn = max(self._feedback.handled_lsn, self._status.confirmed_lsn)
            self._gaps.note(max(stream.wal_end, stored_lsn), stored_lsn=stored_lsn)

    def _chores(self, *, is_idle: bool) -> None:
        self._notifications()
        if self._flush_in_s(is_idle=is_idle) <= 0:
            self._flush(is_idle=is_idle)
        if not self._guard.pauses_copies:
            self._copies.beside.step()
        stream, now_s = self._feedback.stream, time.monotonic()
        if now_s - self._measured_s >= _LAG_S and stream is not None:
            self._measured_s = now_s
            slot = self._postgres.slot()
            if slot is None or slot.is_lost:
                raise Interrupted(f"slot {self._options.slot} was dropped, or is lost")
            self._report_standbys(slot)
            self._status.measured(slot.lag_bytes, slot.wal_status, slot.retained_bytes)
            if self._guard.check(slot.lag_bytes, is_copying=self._copies.beside.is_copying):
                stream.close()
                raise self._guard.drop(self._postgres, slot.lag_bytes)
            # While somebody alters a table, changes go on; what that does is seen by the next check.
            with suppress(TableLockedError), self._postgres.without_waiting():
                self._copies.check()
            requests = self._requests.read()
            if any(one.action != "copy" for one in requests):
                raise TablesRequestedError(
                    "requested: " + ", ".join(f"{one.action} {one.table}" for one in requests)
                )
            self._copies.beside.ask(requests)

    def _report_standbys(self, slot: SlotInfo) -> None:
        """Log that PostgreSQL holds the stream back until standbys have it, if that changes."""
        if slot.standbys != self._standbys:
            self._standbys = slot.standbys
            if slot.standbys is not None:
                logger.warning(
                    "PostgreSQL sends no changes to slot %s until there are standbys for the slots of "
                    "synchronized_standby_slots that are missing or inactive: %s",
                    self._options.slot,
                    slot.standbys,
                )

    def _confirm(self, *, force: bool) -> None:
        """Confirm the handled position to PostgreSQL if everything is stored."""
        if self._writer.is_stored:
            self._feedback.confirm(force=force)
        else:
            self._feedback.keep_alive()

    # ── NOTIFY ──

    def _notifications(self) -> None:
        connection = self._postgres.connection
        # Also without channels, because poll reports a lost connection, which held the lock.
        with translated():
            connection.poll()
        waiting: list[Any] = connection.notifies
        for notification in waiting:
            event, headers = notified(
                notification.channel, notification.payload, key_column=self._options.key_column
            )
            self._writer.add(
                self._options.topic_of_channel(notification.channel),
                event,
                headers,
                timestamp_ms=_now_ms(),
                position=None,
            )
            self._status.notifications += 1
        waiting.clear()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
