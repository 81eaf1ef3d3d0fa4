"""``stele sql``: run a SQL statement over topics."""

from __future__ import annotations

import sys
from typing import Any

import click
import msgspec

from ..operations.sql import JSON, NDJSON, RunSql
from .common import execute, url_option
from .terminal.progress import StatementProgress
from .terminal.results import plural, table

_CSV = "text/csv"


@click.command()
@click.argument("statement")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Print N rows at most.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "ndjson", "csv"]),
    default="text",
    show_default=True,
    help="A table for people, columns and rows as one JSON document, a JSON object per row, or CSV.",
)
@url_option
def sql(statement: str, limit: int | None, form: str, url: str | None) -> None:
    """Run the SELECT in STATEMENT on the broker; - reads it from standard input.

    A topic is a table with the columns _partition, _offset, _timestamp, _key and _headers, and with those of its values
    if they have a schema, otherwise value. Names with dots or dashes stand in double quotes. DuckDB runs the statement, with all its functions for JSON, times and text.

    \b
    stele sql 'select _key, count(*) from orders group by all'
    stele sql "select value->>'$.city' from \\"users.v1\\" where _offset > 100" --format csv
    """
    if statement == "-":
        statement = sys.stdin.read()
    if form in ("csv", "json"):
        answer = execute(RunSql(sql=statement, limit=limit, media_type=_CSV if form == "csv" else JSON), url)
        sys.stdout.buffer.write(answer if form == "csv" else answer + b"\n")
        sys.stdout.buffer.flush()
        return
    with StatementProgress() as progress:
        operation = RunSql(sql=statement, limit=limit, media_type=NDJSON, watch=progress.watch)
        lines = msgspec.json.Decoder().decode_lines(execute(operation, url))
    names = [column["name"] for line in lines for column in line.get("columns", ())]
    rows = [row for line in lines for row in line.get("rows", ())]
    if form == "ndjson":
        for row in rows:
            click.echo(msgspec.json.encode(dict(zip(names, row, strict=True))))
        return
    if names:
        for line in table(names, [[_text(value) for value in row] for row in rows]):
            click.echo(line)
    end = lines[-1]["end"]
    more = ", and there are more" if end["is_truncated"] else ""
    click.echo(f"{plural(end['row_count'], 'row')}{more}", err=True)


def _text(value: Any) -> str:
    if value is None:
        return "null"
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    # A line is a row.
    return text.replace("\n", "\\n").replace("\r", "\\r")
