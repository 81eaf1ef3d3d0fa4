"""The process that runs SQL statements, one after the other: ``python -m stele.sql.start MEMORY_BYTES THREADS``.

It has no login, no network and no secret: the records come from the broker, which knows what the client of a statement
may read. Each statement has a database of its own in memory, which contains what it may see and nothing else, and which
can open no file, load no extension and change no setting. What a statement does beyond the limits, the broker ends by
killing the process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import duckdb

from ..wire import sql_frames as frames
from ..wire.arrow import load_conversions
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
    return frames.Failed(str(error).partition(' Use "SET ')[0] or type(error).__name__)


class Worker:
    """Runs the statements that come over ``link``."""

    def __init__(self, link: Link, *, memory_bytes: int, threads: int) -> None:
        self._link = link
        self._config: dict[str, str | bool | int | float | list[str]] = {
            **_SETTINGS,
            "memory_limit": f"{memory_bytes - _BASE_BYTES}B",
            "threads": str(threads),
        }
        # Of a database of a statement, whose access ends once its files are named.
        self._closing = {name: value for name, value in self._config.items() if name != _ACCESS}
        self._parser = duckdb.connect(":memory:", config=self._config)
        self._manifests = Manifests()

    def run(self) -> None:
        """Run statements until the broker is gone."""
        while True:
            # Before the next statement comes, because it takes 20 ms.
            database = duckdb.connect(":memory:", config=self._closing)
            sql = self._link.receive(frames.Check).sql
            try:
                with database:
                    self._run(database, sql)
            except BrokerGone:
                raise
            except _Limited as error:
                self._link.send(frames.Failed(str(error), error.setting))
            except (duckdb.FatalException, duckdb.InternalException) as error:
                # A database is of no use after it: neither that of the statement, nor the other.
                self._parser = duckdb.connect(":memory:", config=self._config)
                self._link.send(_failure(error))
            except Exception as error:  # noqa: BLE001 - the edge of a statement: DuckDB, Arrow and Python have errors of their own
                self._link.send(_failure(error))

    def _run(self, database: duckdb.DuckDBPyConnection, sql: str) -> None:
        statement, named, qualified = checked(self._parser, sql)
        self._link.send(frames.Named(named, qualified))
        order = self._link.receive(frames.Run, frames.Drop)
        if isinstance(order, frames.Drop):
            return
        tables = list(enumerate(order.tables))
        rows = [self._files(index, table.snapshot) for index, table in tables]
        errors = [self._files(index, table.errors) for index, table in tables]
        self._open(database, {index: (*rows[index], *errors[index]) for index, _ in tables})
        for index, table in tables:
            if table.schemas is None:
                log = _LOG.format(index)
                database.register(log, log_of(self._link, index, table))
                query = text_view(quoted(log), table.snapshot, rows[index], errors[index])
            else:
                query = self._typed(database, index, table, rows[index], errors[index])
            database.execute(f"create view {quoted(table.name)} as {query}")
        database.execute("set TimeZone = 'UTC'")
        database.execute("set lock_configuration = true")
        self._answer(database, statement, order)

    def _files(self, index: int, snapshot: frames.Snapshot | None) -> list[DataFile]:
        if snapshot is None:
            return []

        def read(path: str) -> bytes:
            return self._link.ask(frames.Read(index, path), frames.Bytes).body

        return self._manifests.files_of(snapshot.manifests, read)

    def _open(self, database: duckdb.DuckDBPyConnection, files: Mapping[int, Sequence[DataFile]]) -> None:
        """Close all but the files of a statement."""
        found = {path_of(file): (index, file) for index, some in files.items() for file in some}
        # They have to be named before the rest is closed. They never change, so that footers need not be read twice.
        database.execute("set allowed_paths = ?", [list(found)])
        if found:
            database.execute("set parquet_metadata_cache = true")
        database.execute(f"set {_ACCESS} = false")
        remote = {path: place for path, place in found.items() if not is_local(place[1])}
        if remote:
            from .remote import broker_files

            database.register_filesystem(broker_files(self._link, remote))

    def _typed(
        self,
        database: duckdb.DuckDBPyConnection,
        index: int,
        table: frames.Table,
        rows: Sequence[DataFile],
        errors: Sequence[DataFile],
    ) -> str:
        """Return the query of a topic whose values have columns."""
        # With what knows schemas, which other statements do not need.
        from .values import Values

        values = Values(self._link, index, table)
        own: tuple[Sequence[DataFile], Sequence[DataFile]] = (rows, errors) if table.has_fields else ((), ())
        decoded = ((), ()) if table.has_fields else (rows, errors)
        database.register(_LOG.format(index), log_of(self._link, index, table, values, *decoded))
        return typed_view(database, quoted(_LOG.format(index)), values, table.snapshot, *own)

    def _answer(self, database: duckdb.DuckDBPyConnection, statement: str, order: frames.Run) -> None:
        result = database.sql(statement)
        reader = result.to_arrow_reader(_BATCH_ROWS)
        answer = FORMS[order.form](result.columns, [str(kind) for kind in result.types], reader.schema)
        rows, size = 0, 0
        limit = order.rows_max if order.limit is None else min(order.limit, order.rows_max)
        pieces = [answer.begin()]
        is_truncated = False
        for batch in reader:
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
        self._link.send(frames.Ended(rows, is_truncated))


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
