"""The process that runs SQL statements, one after the other: ``python -m stele.sql.start MEMORY_BYTES THREADS``.

It has no login, no network and no secret: the records come from the broker, which knows what the client of a statement
may read. Each statement has a transaction of its own, which contains what it may see and is never committed, in a
database in memory that can open no other files than those of the statement, load no extension and change no setting.
What a statement does beyond the limits, the broker ends by killing the process.
"""

from __future__ import annotations

import os
import re
import sys
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self, TypeAlias

import duckdb

from ..wire import sql_frames as frames
from ..wire.arrow import load_conversions
from ..wire.arrow_types import RecordBatch, Schema
from .answers import FORMS, groups_of
from .files import is_local, path_of
from .link import BrokerGone, Link
from .log import log_of
from .manifests import DataFile, Manifests
from .statement import checked, quoted
from .views import text_view, typed_view

# Other work of the machine goes first, the broker above all.
_NICENESS = 10
# A result is taken in batches of so many rows, which is what DuckDB makes at a time.
_BATCH_ROWS = 2048
# Address space beyond that of the start and the limit of DuckDB: what Arrow and Python take for batches.
_SPARE_BYTES = 1024**3
# What the process takes without a statement, and beside what DuckDB counts; its own limit is that of the process less this.
_BASE_BYTES = 192 * 1024**2
# Databases that are kept, of the last sets of files that statements have read; each has some MB and threads of its own.
_KEPT_MAX = 3
# Of the end of a topic, where the newest rows are looked for first.
_TAIL_OFFSETS = 10_000
# No topic has spaces in its name.
_LOG = "the log {}"
_ACCESS = "enable_external_access"
_SETTINGS = {
    "allow_community_extensions": "false",
    "allow_persistent_secrets": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    _ACCESS: "false",
    "python_enable_replacements": "false",
    # Nothing is spilled to a disk: what does not fit ends.
    "temp_directory": "",
}
# The files of a statement, each with the index of its table.
_Places: TypeAlias = "tuple[tuple[int, DataFile], ...]"


_ADVICE = re.compile(r'\s+Use "?SET ')


class _Limited(Exception):
    """The answer would have more rows or bytes than a setting allows."""

    def __init__(self, setting: str, reason: str) -> None:
        super().__init__(reason)
        self.setting = setting


def _failure(error: Exception) -> frames.Failed:
    # Arrow passes on errors of DuckDB as text.
    if isinstance(error, duckdb.OutOfMemoryException | MemoryError) or str(error).startswith(
        "Out of Memory Error"
    ):
        return frames.Failed("the statement needs more memory than it may have", "sql_memory_bytes_max")
    # DuckDB advises to change settings, which no statement can.
    return frames.Failed(_ADVICE.split(str(error))[0] or type(error).__name__)


class _Topic(NamedTuple):
    """A topic of a statement, with the files of its rows and of its errors."""

    number: int
    table: frames.Table
    rows: list[DataFile]
    errors: list[DataFile]


class _Result(NamedTuple):
    """Rows that come while they are taken, and what they are."""

    columns: list[str]
    types: list[str]
    schema: Schema
    batches: Iterable[RecordBatch]

    @classmethod
    def of(cls, connection: duckdb.DuckDBPyConnection, query: str) -> Self:
        result = connection.sql(query)
        reader = result.to_arrow_reader(_BATCH_ROWS)
        return cls(result.columns, [str(kind) for kind in result.types], reader.schema, reader)


def _tail(table: frames.Table, rows: int) -> int:
    """Return from which offset on there are probably so many rows of a topic, among them those of the highest offsets."""
    end = max((end for _, _, end in table.partitions), default=0)
    return end - max(rows, _TAIL_OFFSETS // max(1, len(table.partitions)))


class Worker:
    """Runs the statements that come over ``link``."""

    def __init__(self, link: Link, *, memory_bytes: int, threads: int) -> None:
        self._link = link
        self._config: dict[str, str | bool | int | float | list[str]] = {
            **_SETTINGS,
            "memory_limit": f"{memory_bytes - _BASE_BYTES}B",
            "threads": str(threads),
        }
        # Of a database of statements, whose access ends once its files are named.
        self._closing = {name: value for name, value in self._config.items() if name != _ACCESS}
        self._manifests = Manifests()
        self._begin()

    def _begin(self) -> None:
        self._parser = duckdb.connect(":memory:", config=self._config)
        self._kept: OrderedDict[_Places, duckdb.DuckDBPyConnection] = OrderedDict()
        self._spare: duckdb.DuckDBPyConnection | None = None

    def run(self) -> None:
        """Run statements until the broker is gone."""
        while True:
            if self._spare is None:
                # Before the next statement comes, because it takes 20 ms.
                self._spare = duckdb.connect(":memory:", config=self._closing)
            sql = self._link.receive(frames.Check).sql
            try:
                ended = self._run(sql)
            except BrokerGone:
                raise
            except _Limited as error:
                self._link.send(frames.Failed(str(error), error.setting))
            except (duckdb.FatalException, duckdb.InternalException) as error:
                # A database is of no use after it, and it is not known which one is meant.
                self._begin()
                self._link.send(_failure(error))
            except Exception as error:  # noqa: BLE001 - the edge of a statement: DuckDB, Arrow and Python have errors of their own
                self._link.send(_failure(error))
            else:
                if ended is not None:
                    self._link.send(ended)

    def _run(self, sql: str) -> frames.Ended | None:
        """Run a statement; nothing of it goes on afterwards. None: the broker has dropped it."""
        statement = checked(self._parser, sql)
        self._link.send(frames.Named(statement.tables, statement.qualified))
        order = self._link.receive(frames.Run, frames.Drop)
        if isinstance(order, frames.Drop):
            return None
        topics = [
            _Topic(index, table, self._files(index, table.snapshot), self._files(index, table.errors))
            for index, table in enumerate(order.tables)
        ]
        places = tuple((topic.number, file) for topic in topics for file in (*topic.rows, *topic.errors))
        # Closing it ends what threads of the database still read for the statement.
        with self._database(places).cursor() as connection:
            # Never committed: with the connection, all that the statement sees is gone.
            connection.begin()
            if statement.newest is not None:
                self._create_views(connection, topics, _tail(order.tables[0], statement.newest))
                result = _Result.of(connection, statement.query)
                batches = list(result.batches)
                if sum(batch.num_rows for batch in batches) == statement.newest:
                    return self._answer(result._replace(batches=batches), order)
            self._create_views(connection, topics, 0)
            return self._answer(_Result.of(connection, statement.query), order)

    def _files(self, index: int, snapshot: frames.Snapshot | None) -> list[DataFile]:
        if snapshot is None:
            return []

        def read(path: str) -> bytes:
            return self._link.ask(frames.Read(index, path), frames.Bytes).body

        return self._manifests.files_of(snapshot.manifests, read)

    def _database(self, places: _Places) -> duckdb.DuckDBPyConnection:
        """Return a database that can open these files and no others, which is that of the last statement over them."""
        kept = self._kept.pop(places, None)
        if kept is None:
            kept, self._spare = self._spare, None
            assert kept is not None
            self._open(kept, places)
            if len(self._kept) >= _KEPT_MAX:
                self._kept.popitem(last=False)[1].close()
        self._kept[places] = kept
        return kept

    def _open(self, database: duckdb.DuckDBPyConnection, places: _Places) -> None:
        """Close all but these files, for ever."""
        found = {path_of(file): (index, file) for index, file in places}
        # They have to be named before the rest is closed. They never change, so that footers need not be read twice.
        database.execute("set allowed_paths = ?", [list(found)])
        if found:
            database.execute("set parquet_metadata_cache = true")
        database.execute(f"set {_ACCESS} = false")
        remote = {path: place for path, place in found.items() if not is_local(place[1])}
        if remote:
            from .remote import broker_files

            database.register_filesystem(broker_files(self._link, remote))
        # Of all connections to come.
        database.execute("set global TimeZone = 'UTC'")
        database.execute("set lock_configuration = true")

    def _create_views(
        self, connection: duckdb.DuckDBPyConnection, topics: Sequence[_Topic], first: int
    ) -> None:
        """Create the views that a statement sees, with the records from the offset ``first`` on."""
        for number, table, rows, errors in topics:
            log = _LOG.format(number)
            if table.schemas is None:
                connection.register(log, log_of(self._link, number, table))
                query = text_view(quoted(log), table.snapshot, rows, errors)
            else:
                # With what knows schemas, which other statements do not need.
                from .values import Values

                values = Values(self._link, number, table)
                own: tuple[Sequence[DataFile], Sequence[DataFile]] = (
                    (rows, errors) if table.has_fields else ((), ())
                )
                decoded = ((), ()) if table.has_fields else (rows, errors)
                connection.register(log, log_of(self._link, number, table, values, *decoded))
                query = typed_view(connection, quoted(log), values, table.snapshot, *own)
            if first > 0:
                query += f' where "offset" >= {first}'
            connection.execute(f"create or replace view {quoted(table.name)} as {query}")

    def _answer(self, result: _Result, order: frames.Run) -> frames.Ended:
        answer = FORMS[order.form](result.columns, result.types, result.schema)
        rows, size = 0, 0
        limit = order.rows_max if order.limit is None else min(order.limit, order.rows_max)
        pieces = [answer.begin()]
        is_truncated = False
        for batch in result.batches:
            taken = batch.slice(0, limit - rows)
            rows += taken.num_rows
            for group in groups_of(taken) if taken.num_rows else ():
                pieces.append(answer.rows(group))
                size += sum(map(len, pieces))
                if size > order.bytes_max:
                    raise _Limited(
                        "sql_answer_bytes_max",
                        f"the answer has more than {order.bytes_max} bytes; select less",
                    )
                self._link.send_data(b"".join(pieces))
                pieces.clear()
            if taken.num_rows < batch.num_rows:
                is_truncated = True
                break
        if is_truncated and limit != order.limit:
            raise _Limited(
                "sql_rows_max", f"the answer has more than {order.rows_max} rows; select less, or add a LIMIT"
            )
        self._link.send_data(b"".join((*pieces, answer.end())))
        return frames.Ended(rows, is_truncated)


def _limit_process(memory_bytes: int) -> None:
    """Have the system end this process before others, and refuse it memory far beyond its limit."""
    os.nice(_NICENESS)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    with suppress(ImportError, OSError, ValueError):
        import resource

        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        limit = used + memory_bytes + _SPARE_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main() -> None:
    memory_bytes, threads = map(int, sys.argv[1:])
    load_conversions()
    link = Link(sys.stdin.buffer, sys.stdout.buffer)
    _limit_process(memory_bytes)
    with suppress(BrokerGone, KeyboardInterrupt):
        Worker(link, memory_bytes=memory_bytes, threads=threads).run()
    # The threads of a database need not be waited for.
    sys.stdout.buffer.flush()
    os._exit(0)
