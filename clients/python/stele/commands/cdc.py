"""``stele cdc``: stream changes of PostgreSQL tables into topics."""

from __future__ import annotations

import gc
import logging
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click
from click.core import ParameterSource

from ..operations import cdc_admin
from ..supervised import end_with_broker, report
from ..wire.cdc_requests import Action, topic_of
from .common import connected, execute, refuse_password, report_options
from .terminal.results import print_result, table

if TYPE_CHECKING:
    from ..cdc.status import Status

# Seconds between updates of a terminal or a supervisor, and between lines of a log.
_UPDATE_S = 0.5
_OBJECTS_BETWEEN_COLLECTIONS = 200_000
_LOG_S = 10.0


F = TypeVar("F", bound=Callable[..., Any])


def _option(name: str, text: str, *also: str, **settings: Any) -> Callable[[F], F]:
    """Add ``--name``, which ``STELE_CDC_NAME`` or the variables ``also`` may give."""
    variables = [f"STELE_CDC_{name[2:].replace('-', '_').upper()}", *also]
    return click.option(name, envvar=variables, show_envvar=True, help=text, **settings)


class _Gap(click.ClickException):
    """Changes may be missing, which takes a decision."""

    exit_code = 3


_NAMES: dict[str, Any] = {"default": "", "metavar": "A,B", "show_default": False}


@click.group(context_settings={"show_default": True}, invoke_without_command=True)
@_option("--dsn", "postgresql://USER@HOST:PORT/DATABASE. A password is refused here, because `ps` shows arguments: use the "
         "environment variable, or ~/.pgpass.", default="", metavar="DSN", show_default=False)  # fmt: skip
@_option("--tables", "Tables to follow, as SCHEMA.TABLE, separated by commas.", **_NAMES)
@_option("--channels", "NOTIFY channels to follow, separated by commas: pgcdc:orders becomes topic pgcdc.orders.", **_NAMES)  # fmt: skip
@_option("--messages", "Topics that pg_logical_emit_message may name, separated by commas, * at the end for any; none for none.  "
         "[default: * with --tables]", default="", metavar="A,B*", show_default=False)  # fmt: skip
@_option("--slot", "Replication slot; created if missing.", default="stele")
@_option("--publication", "Publication; created if missing.", default="stele")
@_option("--prefix", "Prefix of table topics: PREFIX.SCHEMA.TABLE.", default="pg")
@_option("--notify-prefix", "Prefix of channel topics: PREFIX.NAME.", default="pgcdc")
@_option("--broker", "URL of the broker: stele://HOST:9009 or http://HOST:8080; the login as for other commands: STELE_USER, "
         "STELE_PASSWORD_FILE, STELE_PASSWORD, STELE_API_KEY.", "STELE_URL", default="stele://127.0.0.1:9009", metavar="URL")  # fmt: skip
@_option("--partitions", "Partitions of created topics.", type=int, metavar="N", default=8)
@_option("--storage", "Storage of created topics; memory keeps the newest 10,000 records per partition.",
         type=click.Choice(["disk", "memory"]), default="disk")  # fmt: skip
@_option("--key-column", "Key column of tables without a primary key, and key field of notifications.", default="id")  # fmt: skip
@_option("--tombstones", "After each delete, write a record without a value.", is_flag=True)
@_option("--snapshot", "Copy existing rows: once per table (initial), never, or again.",
         type=click.Choice(["initial", "never", "again"]), default="initial")  # fmt: skip
@_option("--compact", "Create compacted topics, which keep the newest record of each row; implies --tombstones.", is_flag=True)  # fmt: skip
@_option("--value", "Value of records: an envelope with the operation, or the row itself; then a delete is a tombstone.",
         type=click.Choice(["envelope", "row"]), default="envelope")  # fmt: skip
@_option("--format", "Format of values; those of avro, json-schema and debezium-avro have a schema in the registry, debezium "
         "is Debezium's envelope.", type=click.Choice(["json", "avro", "json-schema", "debezium", "debezium-schemas", "debezium-avro"]), default="json")  # fmt: skip
@_option("--decimals", "Decimals in Debezium's envelope, as decimal.handling.mode.",
         type=click.Choice(["precise", "string", "double"]), default="precise")  # fmt: skip
@_option("--times", "Dates and times in Debezium's envelope, as time.precision.mode.",
         type=click.Choice(["adaptive", "connect"]), default="adaptive")  # fmt: skip
@_option("--registry", "URL of the schema registry: http://HOST:8081; the login is that of the broker.  [default: the broker's]",
         "STELE_REGISTRY_URL", default="", metavar="URL", show_default=False)  # fmt: skip
@_option("--spool-dir", "Directory that holds large transactions until they commit.  [default: the system's temporary directory]",
         type=click.Path(path_type=Path, file_okay=False, exists=True), default=None, show_default=False)  # fmt: skip
@_option("--transactions", "Keep the changes of each PostgreSQL transaction together, for readers with read_committed; auto is on for "
         "new connectors, and otherwise as before.", type=click.Choice(["auto", "on", "off"]), default="auto")  # fmt: skip
@_option("--transaction-timeout", "Longest time to write one PostgreSQL transaction.", type=float, metavar="SECONDS", default=900)  # fmt: skip
@_option("--max-slot-lag", "Bytes of WAL that the slot may hold back before --slot-lag-action; 0 for any number.",
         type=int, metavar="BYTES", default=0)  # fmt: skip
@_option("--slot-lag-action", "Beyond --max-slot-lag: log a warning, also pause copies beside the stream, or drop the slot and exit.",
         type=click.Choice(["warn", "pause-copies", "drop-slot"]), default="warn")  # fmt: skip
@_option("--accept-gap", "Go on although changes may be missing from this LSN on, which the connector has named; any for all gaps.",
         default="", metavar="LSN", show_default=False)  # fmt: skip
@_option("--metrics-port", "Serve Prometheus metrics on this port of 127.0.0.1.",
         type=int, metavar="PORT", default=None, show_default=False)  # fmt: skip
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info",
              help="Lowest level that is logged.")  # fmt: skip
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
    """Stream changes of PostgreSQL tables into topics; with a command, look at a connector or change its tables.

    Copies the existing rows, then writes every change exactly once, in commit order.
    Needs wal_level = logical, a role with REPLICATION, and: pip install 'stele-broker[cdc]'

    SIGINT and SIGTERM store and confirm what was read, then exit with 0. If changes may be missing, it exits with 3.
    """
    context = click.get_current_context()
    if context.invoked_subcommand is not None:
        return
    source_of = context.get_parameter_source
    if source_of("broker") is ParameterSource.COMMANDLINE:
        refuse_password(given["broker"])
    if source_of("registry") is ParameterSource.COMMANDLINE:
        refuse_password(given["registry"])
    logging.basicConfig(
        level=log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )
    try:
        from ..cdc.connector import Connector
        from ..cdc.errors import CdcError, GapError
        from ..cdc.options import CdcOptionError, CdcOptions
        from ..cdc.postgres.connection import describe_dsn, has_password
        from ..cdc.status import Status
        from ..errors import SteleClientError
    except ModuleNotFoundError as missing:
        if missing.name != "psycopg2":
            raise
        raise click.ClickException("stele cdc needs psycopg2: pip install 'stele-broker[cdc]'") from missing
    # httpx logs every request at level info.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        if source_of("dsn") is ParameterSource.COMMANDLINE and has_password(dsn):
            raise click.UsageError(
                "the DSN holds a password, which every user of this machine could read; write "
                "postgresql://USER@HOST/DATABASE and keep the password in ~/.pgpass, or set STELE_CDC_DSN"
            )
        options = CdcOptions(dsn=dsn, tables=_names(tables), channels=_names(channels), **given)
        status = Status(slot=options.slot, database=describe_dsn(dsn))
        connector = Connector(options, status)
    except (CdcOptionError, CdcError) as error:
        if supervised:
            report({"slot": given["slot"], "state": "failed", "last_error": str(error)})
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
        end_with_broker(connector.stop)
    ended = threading.Event()
    reporter = threading.Thread(target=_report, args=(status, ended, supervised), daemon=True)
    reporter.start()
    failures: list[Exception] = []
    # Records that wait for their batch are many objects in no circle, which collections would visit again and again.
    gc.freeze()
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)

    def work() -> None:
        try:
            connector.run()
        except Exception as error:  # noqa: BLE001 - raised below, by the thread that may end the process
            failures.append(error)

    # In a thread, because Python runs no signal handler while the main thread waits in libpq.
    worker = threading.Thread(target=work)
    worker.start()
    worker.join()
    failure = failures[0] if failures else None
    if failure is not None:
        status.ended(failure)
    ended.set()
    reporter.join()
    connector.close()
    if isinstance(failure, GapError):
        raise _Gap(str(failure)) from failure
    if isinstance(failure, CdcError | SteleClientError):
        raise click.ClickException(str(failure)) from failure
    if isinstance(failure, OSError):
        raise click.ClickException(f"{failure.strerror}: {failure.filename or 'the spool'}") from failure
    if failure is not None:
        raise failure


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _serve_metrics(status: Status, port: int) -> None:
    from prometheus_client import CollectorRegistry, start_http_server

    from .server import server_module

    registry = CollectorRegistry()
    registry.register(server_module("cdc.metrics").CdcCollector(lambda: [status.document()]))
    try:
        start_http_server(port, addr="127.0.0.1", registry=registry)
    except OSError as error:
        raise click.ClickException(
            f"metrics cannot be served on port {port}: {error.strerror}; choose another --metrics-port"
        ) from error


def _report(status: Status, ended: threading.Event, is_supervised: bool) -> None:
    """Report the status until ``ended``.

    As JSON lines for a supervisor, a line on a terminal, or log lines.
    """
    shown: Literal["json", "terminal", "log"] = (
        "json" if is_supervised else "terminal" if sys.stderr.isatty() else "log"
    )
    before = ""
    while True:
        is_last = ended.wait(_LOG_S if shown == "log" else _UPDATE_S)
        if shown == "json":
            report(status.document())
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


def _connector_options(command: F) -> F:
    """Add ``--prefix`` and ``--slot``, which name a connector, and the options of a report."""
    prefix = _option("--prefix", "Prefix of the connector's topics.", default="pg")
    slot = _option("--slot", "Replication slot of the connector.", default="stele")
    return prefix(slot(report_options(command)))


@cdc.command("status")
@report_options
def status(form: str, url: str | None) -> None:
    """Show the connectors that the broker runs: state, lag, counts and errors."""
    shown = execute(cdc_admin.ListConnectors(), url)
    columns = ("slot", "state", "lag_bytes", "last_error")
    rows = [["" if one.get(name) is None else str(one[name]) for name in columns] for one in shown]
    lines = (
        [*table(["slot", "state", "lag bytes", "last error"], rows)]
        if rows
        else ["the broker runs no connector"]
    )
    print_result(form, {"connectors": shown}, lines)


@cdc.command("tables")
@_connector_options
def tables_of(prefix: str, slot: str, form: str, url: str | None) -> None:
    """List the tables of a connector, wherever it runs: copy and position, from its topics.

    A table that is `requested` is not followed yet, or cannot be: the log of the connector has the reason.
    """
    from ..cdc import state as state_of
    from ..cdc.decoding.notation import lsn_text
    from ..cdc.requests import Requests, applied

    with connected(url) as client:
        state = state_of.load(client, f"__cdc.{prefix}.{slot}")
        _, added = applied((), Requests(client, topic_of(prefix, slot)).read())
    shown = [
        {"table": name, "copy": known.copy, "lsn": lsn_text(known.lsn)}
        for name, known in state.tables.items()
        if known.copy != "left" or name not in added
    ]
    followed = {one["table"] for one in shown}
    shown += [{"table": name, "copy": "requested", "lsn": ""} for name in added if name not in followed]
    shown.sort(key=lambda one: one["table"])
    rows = [[one["table"], one["copy"], one["lsn"]] for one in shown]
    lines = (
        [*table(["table", "copy", "from"], rows)] if rows else [f"connector {prefix} {slot} follows no table"]
    )
    print_result(form, {"prefix": prefix, "slot": slot, "tables": shown}, lines)


@cdc.command("add")
@click.argument("names", nargs=-1, required=True, metavar="TABLE...")
@_connector_options
def add(names: tuple[str, ...], prefix: str, slot: str, form: str, url: str | None) -> None:
    """Let a connector follow more tables; it copies them beside the stream."""
    _request("add", names, prefix, slot, form, url)


@cdc.command("drop")
@click.argument("names", nargs=-1, required=True, metavar="TABLE...")
@_connector_options
def drop(names: tuple[str, ...], prefix: str, slot: str, form: str, url: str | None) -> None:
    """Let a connector leave tables; their topics stay."""
    _request("drop", names, prefix, slot, form, url)


@cdc.command("copy")
@click.argument("names", nargs=-1, required=True, metavar="TABLE...")
@click.option("--where", default="", show_default=False, metavar="SQL", help="Copy only the rows for which this condition holds.")  # fmt: skip
@_connector_options
def copy(names: tuple[str, ...], where: str, prefix: str, slot: str, form: str, url: str | None) -> None:
    """Let a connector copy tables once more, beside the stream: rows come as records with the operation `r`.

    No change is missed or repeated. Needs PostgreSQL 14 and a primary key.
    """
    _request("copy", names, prefix, slot, form, url, where=where)


def _request(
    action: Action,
    names: tuple[str, ...],
    prefix: str,
    slot: str,
    form: str,
    url: str | None,
    *,
    where: str = "",
) -> None:
    from ..cdc.requests import request

    with connected(url) as client:
        try:
            tables = request(client, topic_of(prefix, slot), action, names, where=where)
        except ValueError as error:
            raise click.UsageError(str(error)) from error
    shown = {"action": action, "tables": tables, "prefix": prefix, "slot": slot}
    see = f"stele cdc tables --prefix {prefix} --slot {slot}"
    print_result(form, shown, [f"requested: {action} {', '.join(tables)}; see: {see}"])
