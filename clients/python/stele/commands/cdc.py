"""``stele cdc``: changes out of PostgreSQL into topics."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

if TYPE_CHECKING:
    from ..cdc.status import Status

_SHOW_S = 0.5
_SAY_S = 10.0


@click.command(context_settings={"show_default": True})
@click.option("--dsn", envvar="STELE_CDC_DSN", default="", metavar="DSN", show_default=False,
              help="postgresql://USER:PASSWORD@HOST:PORT/DATABASE. Out of sight of `ps`: give it as STELE_CDC_DSN, or "
              "the password in ~/.pgpass.")  # fmt: skip
@click.option("--tables", envvar="STELE_CDC_TABLES", default="", metavar="A,B", show_default=False,
              help="Tables to follow, as SCHEMA.TABLE, with commas between.")  # fmt: skip
@click.option("--channels", envvar="STELE_CDC_CHANNELS", default="", metavar="A,B", show_default=False,
              help="Channels of NOTIFY to follow: pgcdc:orders becomes topic pgcdc.orders.")  # fmt: skip
@click.option(
    "--slot", envvar="STELE_CDC_SLOT", default="stele", help="Replication slot; made if it is not there."
)
@click.option("--publication", envvar="STELE_CDC_PUBLICATION", default="stele",
              help="Publication; made if it is not there.")  # fmt: skip
@click.option("--prefix", envvar="STELE_CDC_PREFIX", default="pg", help="Topics are PREFIX.SCHEMA.TABLE.")
@click.option("--notify-prefix", envvar="STELE_CDC_NOTIFY_PREFIX", default="pgcdc",
              help="Topics of channels are PREFIX.NAME.")  # fmt: skip
@click.option("--broker", envvar="STELE_CDC_BROKER", default="stele://127.0.0.1:9009", metavar="URL",
              help="Where the records go: stele://HOST:PORT or http://HOST:PORT.")  # fmt: skip
@click.option(
    "--partitions", envvar="STELE_CDC_PARTITIONS", type=int, default=8, help="Of topics that are made."
)
@click.option("--storage", envvar="STELE_CDC_STORAGE", type=click.Choice(["disk", "memory"]), default="disk",
              help="Of topics that are made; memory is a ring of 10,000 records in each partition.")  # fmt: skip
@click.option("--key-column", envvar="STELE_CDC_KEY_COLUMN", default="id",
              help="Key of a table without a primary key, and field of a notification that is its key.")  # fmt: skip
@click.option("--tombstones", envvar="STELE_CDC_TOMBSTONES", is_flag=True,
              help="Behind each delete a record without a value.")  # fmt: skip
@click.option("--snapshot", envvar="STELE_CDC_SNAPSHOT", type=click.Choice(["initial", "never", "again"]), default="initial",
              help="Copy what is in the tables: once, never, or another time.")  # fmt: skip
@click.option("--spool-dir", envvar="STELE_CDC_SPOOL_DIR", type=click.Path(path_type=Path, file_okay=False, exists=True),
              default=None, show_default=False,
              help="Where large transactions wait for their commit. [default: the system's]")  # fmt: skip
@click.option("--metrics-port", envvar="STELE_CDC_METRICS_PORT", type=int, default=None, show_default=False,
              help="Serve Prometheus metrics on this port of 127.0.0.1.")  # fmt: skip
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info")
@click.option("--supervised", is_flag=True, hidden=True)
def cdc(
    dsn: str,
    tables: str,
    channels: str,
    metrics_port: int | None,
    log_level: str,
    supervised: bool,
    **given: Any,
) -> None:
    """Follow tables of PostgreSQL: what is in them, then each change, in the order of commits, once.

    Needs wal_level = logical, a role that may replicate, and the extra: pip install 'stele-broker[cdc]'.
    SIGTERM and SIGINT confirm what is stored and end with 0.
    """
    logging.basicConfig(
        level=log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )
    try:
        from ..cdc.connection import describe_dsn
        from ..cdc.connector import Connector
        from ..cdc.errors import CdcError
        from ..cdc.options import CdcOptionError, CdcOptions
        from ..cdc.status import Status
        from ..errors import SteleClientError
    except ModuleNotFoundError as missing:
        if missing.name != "psycopg2":
            raise
        raise click.ClickException("stele cdc needs psycopg2: pip install 'stele-broker[cdc]'") from missing
    # At its level it would log every request.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        options = CdcOptions(dsn=dsn, tables=_names(tables), channels=_names(channels), **given)
        status = Status(slot=options.slot, database=describe_dsn(dsn))
        connector = Connector(options, status)
    except (CdcOptionError, CdcError) as error:
        if supervised:
            click.echo(json.dumps({"slot": given["slot"], "state": "failed", "last_error": str(error)}))
        if isinstance(error, CdcOptionError):
            raise click.UsageError(str(error)) from error
        raise click.ClickException(str(error)) from error

    def stop(_number: int, _frame: object) -> None:
        connector.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    if metrics_port is not None:
        _serve_metrics(status, metrics_port)
    if supervised:
        threading.Thread(target=_end_with_parent, args=(connector.stop,), daemon=True).start()
    ended = threading.Event()
    reporter = threading.Thread(target=_report, args=(status, ended, supervised), daemon=True)
    reporter.start()
    failures: list[Exception] = []

    def work() -> None:
        try:
            connector.run()
        except Exception as error:  # noqa: BLE001 - raised below, by the thread that may end the process
            failures.append(error)

    # A thread of its own: this one hears signals, which nobody does who waits in libpq.
    worker = threading.Thread(target=work)
    worker.start()
    worker.join()
    failure = failures[0] if failures else None
    if failure is not None:
        status.failed(failure)
        status.state = "failed"
    ended.set()
    reporter.join()
    connector.close()
    if isinstance(failure, CdcError | SteleClientError):
        raise click.ClickException(str(failure)) from failure
    if isinstance(failure, OSError):
        raise click.ClickException(f"{failure.strerror}: {failure.filename or 'the spool'}") from failure
    if failure is not None:
        raise failure


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _end_with_parent(stop: Any) -> None:
    """The broker that started this process holds the other end of its standard input, for as long as it lives."""
    # Not sys.stdin: the interpreter can not end while a thread holds its buffer.
    while os.read(0, 4096):
        pass
    stop()


def _serve_metrics(status: Status, port: int) -> None:
    from prometheus_client import CollectorRegistry, start_http_server

    from .server import server_module

    registry = CollectorRegistry()
    registry.register(server_module("cdc.metrics").CdcCollector(lambda: [status.document()]))
    try:
        start_http_server(port, addr="127.0.0.1", registry=registry)
    except OSError as error:
        raise click.ClickException(f"metrics can not be served on port {port}: {error.strerror}") from error


def _report(status: Status, ended: threading.Event, is_supervised: bool) -> None:
    """A line of JSON for a supervisor; one that renews itself on a terminal; now and then one in a log."""
    shown: Literal["json", "terminal", "log"] = (
        "json" if is_supervised else "terminal" if sys.stderr.isatty() else "log"
    )
    before = ""
    while True:
        is_last = ended.wait(_SAY_S if shown == "log" else _SHOW_S)
        if shown == "json":
            with suppress(BrokenPipeError):
                # Nobody listens any more: the end of standard input has said so, too.
                click.echo(json.dumps(status.document()))
        elif shown == "terminal":
            click.echo(f"\r\033[K{_line(status)}", nl=is_last, err=True)
        elif (line := _line(status)) != before:
            before = line
            logging.getLogger("stele.cdc").info("%s", line)
        if is_last:
            return


def _line(status: Status) -> str:
    if status.state == "copying":
        copied = ", ".join(
            f"{name} {table.copied:,}" + (f" of about {table.expected:,}" if table.expected else "")
            for name, table in list(status.tables.items())
        )
        return f"copying: {copied}"
    lag = "" if status.lag_bytes is None else f", {status.lag_bytes:,} bytes behind"
    return f"{status.state}: {status.events:,} records, {status.transactions:,} transactions{lag}"
