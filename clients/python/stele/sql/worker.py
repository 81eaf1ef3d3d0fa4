"""The process that runs SQL statements, one after the other: ``python -m stele.sql.worker MEMORY_BYTES THREADS``.

It has no login, no network and no secret: the records come from the broker, which knows what the client of a statement
may read. Each statement has a database of its own in memory, which contains what it may see and nothing else, and which
can open no file, load no extension and change no setting. What a statement does beyond the limits, the broker ends by
killing the process.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

import duckdb

from ..wire import sql_frames as frames
from ..wire.arrow import load_conversions
from .answers import FORMS, groups_of
from .link import BrokerGone, Link
from .log import log_of
from .snapshots import files_of, rows_of
from .statement import checked, quoted

# Other work of the machine goes first, the broker above all.
_NICENESS = 10
# A result is taken in batches of so many rows, which is what DuckDB makes at a time.
_BATCH_ROWS = 2048
# Address space beyond that of the start and the limit of DuckDB: what Arrow and Python take for batches.
_SPARE_BYTES = 1024**3
# What the process takes without a statement, and beside what DuckDB counts; its own limit is that of the process less this.
_BASE_BYTES = 192 * 1024**2
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
# Bytes as text: those that are no UTF-8 are written as \\xNN, which a cast to BLOB reads back.
_TEXT = "coalesce(try(decode({0})), {0}::varchar)"
_COLUMNS = ", ".join(
    (
        "partition as _partition",
        '"offset" as _offset',
        "timestamp as _timestamp",
        f"{_TEXT.format('key')} as _key",
        "list_transform(headers, lambda h: struct_pack(key := h.key, value := "
        f"{_TEXT.format('h.value')})) as _headers",
        f"{_TEXT.format('value')} as value",
    )
)


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
        self._parser = duckdb.connect(":memory:", config=self._config)

    def run(self) -> None:
        """Run statements until the broker is gone."""
        while True:
            sql = self._link.receive(frames.Check).sql
            try:
                self._run(sql)
            except BrokerGone:
                raise
            except _Limited as error:
                self._link.send(frames.Failed(str(error), error.setting))
            except Exception as error:  # noqa: BLE001 - the edge of a statement: DuckDB, Arrow and Python have errors of their own
                self._link.send(_failure(error))

    def _run(self, sql: str) -> None:
        statement, tables, qualified = checked(self._parser, sql)
        self._link.send(frames.Named(tables, qualified))
        order = self._link.receive(frames.Run, frames.Drop)
        if isinstance(order, frames.Drop):
            return
        files = [files_of(table.snapshot) for table in order.tables]
        errors = [files_of(table.errors) for table in order.tables]
        paths = [path for found in (*files, *errors) for path in found]
        config = {name: value for name, value in self._config.items() if name != _ACCESS}
        with duckdb.connect(":memory:", config=config) as database:
            # Of all files, it may open these; they have to be named before the rest is closed.
            database.execute("set allowed_paths = ?", [paths])
            database.execute(f"set {_ACCESS} = false")
            for index, table in enumerate(order.tables):
                # No topic has spaces in its name.
                log = f"the log {index}"
                database.register(log, log_of(self._link, index, table))
                rows = rows_of(quoted(log), files[index], errors[index], table.snapshot)
                database.execute(f"create view {quoted(table.name)} as select {_COLUMNS} from {rows}")  # noqa: S608
            database.execute("set TimeZone = 'UTC'")
            database.execute("set lock_configuration = true")
            self._answer(database, statement, order)

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


if __name__ == "__main__":
    main()
