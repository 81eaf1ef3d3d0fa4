"""Run a statement: check its rights, serve it the records that it may see, and stop it at its limits.

A statement sees what was visible when it began: the offsets of its topics are taken once, after the process has named
the topics. The process has no access to the log; it asks for batches, and gets those of its topics and offsets only.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import NamedTuple

from stele.wire import sql_frames as frames

from ..broker.broker import Broker
from ..broker.reading.fetch import PartitionFetch, end_of, visible_bytes
from ..broker.topics import Topic
from ..concurrency import several
from ..errors import BrokerClosing, InvalidRequest, StatementStopped, SteleError, TopicRecreated, UnknownTopic
from ..registry.values import SchemaText, SchemaValues
from ..spelling import nearest
from ..work_budget import visited
from .processes import SqlProcess, SqlProcesses, is_installed
from .snapshots import Snapshots, TableFiles

# What is read in one turn of the loop.
_PIECE_BYTES = 256 * 1024
# How often time and memory of a statement are looked at, and how often its progress is reported.
_WATCH_S, _PROGRESS_S = 0.1, 1.0
# Among how many topics a misspelled name is looked for: the comparison is slow.
_COMPARED_MAX = 500
# A longer statement is not searched for them.
_SEARCHED_MAX = 4096
# What follows the name of a topic whose values are wanted as they are stored.
_RAW = "$raw"
_QUOTES = ' Names with dots or dashes stand in double quotes: SELECT * FROM "orders.eu-1"'


@dataclass(slots=True)
class Progress:
    """What a statement has read: offsets ``of`` all that its topics had in logs, and bytes of logs and buckets."""

    offsets: int = 0
    of: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a statement whose whole answer was sent."""

    rows: int
    is_truncated: bool
    read: Progress


@dataclass(slots=True)
class StatementTotals:
    """Totals over all statements, for metrics."""

    scanned_bytes: int = 0
    answer_bytes: int = 0
    ended: dict[str, int] = field(default_factory=lambda: {"end": 0, "limit": 0, "refused": 0, "stopped": 0})


@dataclass(frozen=True, slots=True)
class Rights:
    """What the client of a statement may do: ``check`` raises ``AuthorizationError``, ``sees`` filters lists."""

    check: Callable[[Sequence[str]], None]
    sees: Callable[[str], bool]


class SqlStatements:
    """Runs statements for clients."""

    def __init__(self, broker: Broker, tables: Snapshots, values: SchemaValues) -> None:
        """``tables`` has the topics that are Iceberg tables, ``values`` the schemas of those whose values have one."""
        self._broker = broker
        self.tables = tables
        self.values = values
        self._settings = broker.settings
        self.totals = StatementTotals()
        self._processes = SqlProcesses(
            memory_bytes=self._settings.sql_memory_bytes_max, threads=self._settings.sql_threads
        )
        self._is_installed = self._is_closing = False

    @property
    def is_installed(self) -> bool:
        # It may be installed while the broker runs; to look takes a millisecond.
        self._is_installed = self._is_installed or is_installed()
        return self._is_installed

    @property
    def processes(self) -> int:
        return self._processes.count

    async def close(self) -> None:
        """End all statements and processes."""
        self._is_closing = True
        await self._processes.close()

    async def run(
        self, sql: str, *, form: str, limit: int | None, rights: Rights
    ) -> AsyncGenerator[bytes | Progress | Outcome]:
        """Run a statement and yield its answer in ``form``, as ``stele.sql.answers`` encodes it; the outcome is last.

        The progress comes while nothing else does. ``limit`` ends the answer after so many rows. The statement is
        stopped if the generator is closed.

        Raises:
            InvalidRequest: the statement is not valid, or not allowed.
            UnknownTopic, AuthorizationError: it names a topic that does not exist, or that the client may not read.
            StatementStopped: it exceeds a limit.
            SteleError: records cannot be read.
            OSError: no process can be started.
        """
        ending, is_done = "stopped", False
        denied: SteleError | None = None
        process = await self._processes.take()
        try:
            async with aclosing(self._frames(process)) as received:
                await process.send(frames.Check(sql))
                named = await self._named(received)
                try:
                    reading = await self._opened(named, rights)
                except SteleError:
                    await process.send(frames.Drop())
                    is_done = True
                    raise
                await process.send(
                    frames.Run(
                        tables=reading.tables,
                        form=form,
                        limit=limit,
                        rows_max=self._settings.sql_rows_max,
                        bytes_max=self._settings.sql_answer_bytes_max,
                    )
                )
                async for frame in received:
                    match frame:
                        case frames.Fetch() | frames.Seek() | frames.Find() | frames.Read():
                            try:
                                answer = await reading.answer(frame)
                            except SteleError as error:
                                # The process ends the statement, and says so.
                                denied, answer = error, frames.Drop()
                            await process.send(answer)
                        case frames.Data():
                            self.totals.answer_bytes += len(frame.body)
                            yield frame.body
                        case frames.Ended():
                            ending, is_done = "end", True
                            yield Outcome(frame.rows, frame.is_truncated, reading.progress)
                            return
                        case None:
                            yield reading.progress
                        case _:
                            raise AssertionError(f"{type(frame).__name__} came at a wrong time")
        except _Refused as refused:
            is_done = True
            is_limit = bool(refused.frame.setting) or isinstance(denied, StatementStopped)
            ending = "limit" if is_limit else "refused"
            if denied is not None:
                raise denied from None
            if refused.frame.setting:
                raise self._stopped(refused.frame.setting, refused.frame.reason) from None
            raise InvalidRequest(refused.frame.reason + self._unquoted(sql, rights)) from None
        except StatementStopped:
            ending = "limit"
            raise
        except SteleError:
            ending = "refused"
            raise
        finally:
            self.totals.ended[ending] += 1
            await self._processes.give_back(process, is_done=is_done)

    async def _frames(self, process: SqlProcess) -> AsyncGenerator[frames.ToBroker | None]:
        """Yield the frames of a process, None in between when there is progress to report.

        Raises:
            StatementStopped: it takes too much time or memory.
            BrokerClosing: the broker is closing.
            _Refused: the process has sent the reason.
        """
        loop = asyncio.get_running_loop()
        now_s = watched_s = shown_s = loop.time()
        deadline_s = now_s + self._settings.sql_timeout_ms / 1000
        receiving: asyncio.Future[frames.ToBroker | None] | None = None
        try:
            while True:
                if receiving is None:
                    receiving = asyncio.ensure_future(process.receive())
                await asyncio.wait((receiving,), timeout=_WATCH_S)
                now_s = loop.time()
                if now_s - watched_s >= _WATCH_S:
                    watched_s = now_s
                    self._watch(process, is_late=now_s > deadline_s)
                if receiving.done():
                    frame, receiving = receiving.result(), None
                    if frame is None:
                        raise self._ended()
                    if isinstance(frame, frames.Failed):
                        raise _Refused(frame)
                    if isinstance(frame, frames.Data):
                        shown_s = now_s
                    yield frame
                if now_s - shown_s >= _PROGRESS_S:
                    shown_s = now_s
                    yield None
        finally:
            if receiving is not None:
                receiving.cancel()
                await asyncio.gather(receiving, return_exceptions=True)

    def _watch(self, process: SqlProcess, *, is_late: bool) -> None:
        if self._is_closing or self._broker.is_closing:
            raise BrokerClosing
        if is_late:
            raise self._stopped("sql_timeout_ms", "the statement took too long")
        if process.resident_bytes > self._settings.sql_memory_bytes_max:
            raise self._stopped("sql_memory_bytes_max", "the statement needs more memory than it may have")

    def _stopped(self, setting: str, reason: str) -> StatementStopped:
        return StatementStopped(reason, setting=setting, value=getattr(self._settings, setting))

    def _ended(self) -> SteleError:
        """Return why a process has ended by itself: of what it may do, memory alone can have that effect."""
        if self._is_closing:
            return BrokerClosing()
        return self._stopped(
            "sql_memory_bytes_max", "the process of the statement ended, probably for want of memory"
        )

    async def _named(self, received: AsyncGenerator[frames.ToBroker | None]) -> frames.Named:
        async for frame in received:
            if frame is not None:
                assert isinstance(frame, frames.Named)
                return frame
        raise AssertionError

    async def _opened(self, named: frames.Named, rights: Rights) -> _Reading:
        """Return what the statement reads; its end is that of now. Raises as ``run``."""
        names = [name.removesuffix(_RAW) for name in named.tables]
        rights.check(names)
        broker = self._broker
        await broker.find_topics(names)
        try:
            topics = [broker.topic(name) for name in names]
        except UnknownTopic as error:
            raise UnknownTopic(error.topic, instead=await self._hint(error.topic, named, rights)) from None
        sources = [await self._source(name, topic) for name, topic in zip(named.tables, topics, strict=True)]
        return _Reading(self, broker, rights, sources)

    async def _source(self, name: str, topic: Topic) -> _Source:
        mode, is_raw = topic.config.iceberg_mode, name.endswith(_RAW)
        # Before the ends, so that it has nothing after them. The files of values with columns have no bytes of values.
        files = TableFiles() if is_raw and mode == "value_schema" else await self.tables.of(topic)
        offsets = {} if files.rows is None else files.rows.offsets
        numbers = range(topic.partitions)
        await self._broker.refresh((topic.name, number) for number in numbers)
        partitions: list[tuple[int, int, int]] = []
        async for number in visited(numbers):
            state = self._broker.log_state(topic.name, number)
            start = max(state.log_start_offset, offsets.get(number, 0))
            partitions.append((number, start, max(start, state.last_stable_offset)))
        # After the ends, so that it has the schemas of all values before them.
        schemas = [] if is_raw else await self.values.texts(topic)
        has_columns = bool(schemas) or (mode == "value_schema" and not is_raw)
        table = frames.Table(
            name,
            partitions,
            files.rows,
            files.errors,
            [_schema(text) for text in schemas] if has_columns else None,
            has_fields=mode == "value_schema",
        )
        return _Source(table, topic, files)

    async def _hint(self, name: str, named: frames.Named, rights: Rights) -> str:
        """Return what was probably meant, of the topics that the client may see; empty if none is like it."""
        seen = [topic.name async for topic in visited(self._broker.topics()) if rights.sees(topic.name)]
        # In a name with dots that is not quoted, only its end is that of the table.
        others = (other.removesuffix(_RAW).lower() for other in named.qualified)
        whole = {other for other in others if other.endswith(name.lower())}
        meant = next((topic for topic in seen if topic.lower() in whole), None)
        meant = meant or nearest(name, seen[:_COMPARED_MAX])
        return "" if meant is None else _hint(meant)

    def _unquoted(self, sql: str, rights: Rights) -> str:
        """Return a hint if a statement that does not parse has a name that must be quoted."""
        if len(sql) > _SEARCHED_MAX:
            return ""
        for topic in self._broker.topics()[:_COMPARED_MAX]:
            name = topic.name
            if not name.isidentifier() and name in sql and f'"{name}"' not in sql and rights.sees(name):
                return f"; {_hint(name)}"
        return ""


def _hint(name: str) -> str:
    return f'did you mean "{name}"?{"" if name.isidentifier() else _QUOTES}'


class _Refused(Exception):
    """The process has refused or ended its statement, and waits for the next one."""

    def __init__(self, frame: frames.Failed) -> None:
        super().__init__(frame.reason)
        self.frame = frame


class _Source(NamedTuple):
    """A table of a statement, and where its rows are."""

    table: frames.Table
    topic: Topic
    files: TableFiles


def _schema(text: SchemaText) -> frames.Schema:
    return frames.Schema(*text)


class _Reading:
    """What one statement may read, and has read."""

    def __init__(
        self, statements: SqlStatements, broker: Broker, rights: Rights, sources: list[_Source]
    ) -> None:
        self.tables = [source.table for source in sources]
        self.progress = Progress(
            of=sum(end - start for table in self.tables for _, start, end in table.partitions)
        )
        # What counts for the limit: files have none, as those of a directory.
        self._log_bytes = 0
        self._statements = statements
        self._broker = broker
        self._rights = rights
        self._sources = sources

    async def answer(self, frame: frames.Question) -> frames.ToProcess:
        """Return what the process asks for. Raises ``SteleError``: the statement cannot go on."""
        topic = self._check(frame.table)
        match frame:
            case frames.Fetch():
                return await self._fetch(topic.name, frame)
            case frames.Seek():
                return await self._seek(topic.name, frame)
            case frames.Find():
                text = await self._statements.values.text(topic, frame.schema)
                return frames.Found(None if text is None else _schema(text))
            case frames.Read():
                body = await self._statements.tables.read(self._sources[frame.table].files, frame)
                self._add(0 if frame.path.startswith("file:") else len(body))
                return frames.Bytes(body)

    async def _fetch(self, name: str, frame: frames.Fetch) -> frames.Fetched:
        limit = self._broker.settings.sql_scan_bytes_max
        if self._log_bytes >= limit:
            raise StatementStopped(
                "the statement reads too much: name offsets, times or partitions in its WHERE",
                setting="sql_scan_bytes_max",
                value=limit,
            )
        request = PartitionFetch(
            topic=name,
            partition=frame.partition,
            offset=frame.offset,
            max_bytes=_PIECE_BYTES,
            until_offset=frame.until,
        )
        (read,) = await self._broker.fetch((request,), max_bytes=_PIECE_BYTES, is_scan=True)
        if read.error is not None:
            raise read.error
        # Compaction may have removed all up to the end.
        end = min(end_of(read, frame.offset), frame.until) if read.batches else frame.until
        self._add(len(read.batches))
        self._log_bytes += len(read.batches)
        self.progress.offsets += end - frame.offset
        batches = await visible_bytes(read) if read.aborted else read.batches
        return frames.Fetched(bytes(batches), end)

    async def _seek(self, name: str, frame: frames.Seek) -> frames.Sought:
        async def sought(partition: int) -> int:
            offset, _, _ = await self._broker.list_offset(name, partition, frame.at_ms)
            return offset

        return frames.Sought(await several(sought, frame.partitions))

    def _add(self, size: int) -> None:
        self.progress.bytes += size
        self._statements.totals.scanned_bytes += size

    def _check(self, table: int) -> Topic:
        """Return the topic of a table, which is the same and may still be read."""
        topic = self._sources[table].topic
        self._rights.check([source.topic.name for source in self._sources])
        if self._broker.topic(topic.name).topic_id != topic.topic_id:
            raise TopicRecreated(topic.name, str(topic.topic_id))
        return topic
