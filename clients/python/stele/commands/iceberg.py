"""``stele iceberg``: topics as Apache Iceberg tables."""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import click

from ..operations.iceberg_admin import GetIceberg, ListIceberg
from .common import execute, report_options, url_option
from .terminal.results import print_result, table

# What the process imports, by the name of the module.
_NEEDED = ("pyiceberg", "pyarrow", "sqlalchemy", "numpy")


@click.group()
def iceberg() -> None:
    """Write topics as Apache Iceberg tables, and show how far the tables are.

    A topic becomes a table with the configuration stele.iceberg.mode=key_value or value_schema.
    """


@iceberg.command("status")
@click.argument("topic", required=False)
@click.option("--json", "is_json", is_flag=True, help="The same as --format json.")
@report_options
def status(topic: str | None, is_json: bool, form: str, url: str | None) -> None:
    """Show how far the tables are, or that of TOPIC: rows, lag and errors."""
    if topic is None:
        shown = execute(ListIceberg(), url)
        lines = _list_lines(shown)
    else:
        shown = execute(GetIceberg(topic=topic), url)
        lines = _topic_lines(shown)
    print_result("json" if is_json else form, shown, lines)


def _list_lines(shown: Mapping[str, Any]) -> Iterator[str]:
    yield f"the writer is {shown['state']}" + (f": {shown['last_error']}" if shown["last_error"] else "")
    rows = [
        [
            one["topic"],
            one["mode"],
            one["state"],
            *(_number(one[name]) for name in ("rows", "error_rows", "lag_records")),
        ]
        for one in shown["topics"]
    ]
    yield from (
        table(["topic", "mode", "state", "rows", "errors", "lag"], rows) if rows else ["no topic is a table"]
    )
    for one in shown["topics"]:
        if one["reason"]:
            yield f"{one['topic']}: {one['reason']}"


def _topic_lines(one: Mapping[str, Any]) -> Iterator[str]:
    yield f"table {one['table']} is {one['state']}" + (f": {one['reason']}" if one["reason"] else "")
    for name in (
        "mode",
        "rows",
        "error_rows",
        "lag_records",
        "lag_seconds",
        "lost_records",
        "commits",
        "snapshot_id",
    ):
        yield f"{name.replace('_', ' ')}: {_number(one[name])}"


def _number(value: object) -> str:
    return "?" if value is None else str(value)


@iceberg.command("run")
@click.option(
    "--warehouse",
    envvar="STELE_ICEBERG_WAREHOUSE",
    metavar="URL",
    help="Where the tables are: a directory, or s3://BUCKET/PREFIX?endpoint=URL.  [env var: STELE_ICEBERG_WAREHOUSE]",
)
@click.option(
    "--catalog",
    envvar="STELE_ICEBERG_CATALOG",
    metavar="FILE",
    help="The file of the catalog; one of several brokers has it in PostgreSQL.  [env var: STELE_ICEBERG_CATALOG]",
)
@click.option("--supervised", is_flag=True, hidden=True)
@url_option
def run(warehouse: str | None, catalog: str | None, supervised: bool, url: str | None) -> None:
    """Write the tables of a broker until ctrl-c.

    A broker does this by itself if the extra is installed. Several of these processes do no harm: of two commits
    that overlap, one fails and is made again.
    """
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise click.ClickException(
            f"there is no {missing[0]} here; tables need the extra iceberg: pip install 'stele-broker[iceberg]'"
        )
    if warehouse is None or catalog is None:
        raise click.UsageError(
            "give --warehouse and --catalog: for the tables of a broker of this machine iceberg/warehouse and "
            "iceberg/catalog.sqlite in its data directory"
        )
    from ..config import url_from_environment
    from ..iceberg.errors import IcebergError
    from ..iceberg.options import WriterOptions
    from ..iceberg.run import run_alone, run_supervised

    logging.basicConfig(
        level="INFO", format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )
    # They log every request and every file at level info.
    for name in ("httpx", "pyiceberg"):
        logging.getLogger(name).setLevel(logging.WARNING)
    broker = os.environ.get("STELE_ICEBERG_BROKER") or url or url_from_environment()
    options = WriterOptions(broker=broker, catalog=catalog, warehouse=warehouse)
    if supervised:
        sys.exit(run_supervised(options))
    try:
        run_alone(options)
    except IcebergError as error:
        raise click.ClickException(str(error)) from error
