"""``stele consume``: print records, and follow a topic."""

from __future__ import annotations

import os
import re
import sys
from datetime import UTC, datetime, timedelta
from typing import BinaryIO, Literal

import click

from ..consuming.consumer import Consumer
from .common import connected, url_option
from .outputs import CsvRows, JsonArray, Shown, Writer, hex_dump, ndjson_line, text_writer

_AGO = re.compile(r"^-(\d+)(ms|s|m|h|d)$")
_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


@click.command(context_settings={"ignore_unknown_options": False})
@click.argument("topic")
@click.option("--partition", "partitions", type=int, multiple=True, help="Only this one; may be repeated.")
@click.option(
    "--from",
    "start",
    default="earliest",
    show_default=True,
    metavar="START",
    help="earliest, latest, an offset, a time (2026-11-20T10:00Z), or -5m, -1h, -2d ago.",
)
@click.option("-f", "--follow", is_flag=True, help="Go on with what is written from now on.")
@click.option("--max", "max_records", type=click.IntRange(min=1), help="Stop after so many records.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "ndjson", "csv", "hex"]),
    default="text",
    show_default=True,
)
@click.option("--partitions", "show_partition", is_flag=True, help="With text: show partitions.")
@click.option("--offsets", "show_offset", is_flag=True, help="With text: show offsets.")
@click.option("--timestamps", "show_timestamp", is_flag=True, help="With text: show times.")
@click.option("--keys", "show_key", is_flag=True, help="With text: show keys.")
@click.option("--headers", "show_headers", is_flag=True, help="With text: show headers.")
@url_option
def consume(
    topic: str,
    partitions: tuple[int, ...],
    start: str,
    follow: bool,
    max_records: int | None,
    form: str,
    show_partition: bool,
    show_offset: bool,
    show_timestamp: bool,
    show_key: bool,
    show_headers: bool,
    url: str | None,
) -> None:
    """Print the records of TOPIC that are there, or follow it with -f.

    \b
    stele consume greetings
    stele consume orders -f --from -1h --format ndjson | jq .value
    """
    shown = Shown(
        partition=show_partition,
        offset=show_offset,
        timestamp=show_timestamp,
        key=show_key,
        headers=show_headers,
    )
    writers: dict[str, Writer] = {
        "text": text_writer(shown),
        "ndjson": ndjson_line,
        "json": JsonArray(),
        "csv": CsvRows(),
        "hex": hex_dump,
    }
    writer = writers[form]
    out = sys.stdout.buffer
    with (
        connected(url) as client,
        Consumer(
            client,
            topic,
            partitions=partitions or None,
            start=parse_start(start),
            follow=follow,
            outage_timeout_s=None if follow else 10.0,
        ) as consumer,
    ):
        # Without a broker now it is a mistake to report; one that goes away later is waited for.
        client.ping()
        try:
            _print(consumer, writer, out, max_records)
        except BrokenPipeError:
            # The reader, such as `head`, has seen enough; nor must the interpreter complain at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())


def _print(consumer: Consumer[bytes], writer: Writer, out: BinaryIO, max_records: int | None) -> None:
    left = sys.maxsize if max_records is None else max_records
    try:
        for records in consumer.batches():
            out.write(b"".join([writer(record) for record in records[:left]]))
            out.flush()
            left -= len(records)
            if left <= 0:
                break
    finally:
        if isinstance(writer, JsonArray):
            out.write(writer.end())
            out.flush()


def parse_start(text: str) -> Literal["earliest", "latest"] | int | datetime:
    """Raises click.BadParameter for what is none of the forms the help lists."""
    if text in ("earliest", "latest"):
        return text
    if text.isascii() and text.isdigit():
        return int(text)
    if ago := _AGO.match(text):
        return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is not earliest, latest, an offset, a time like 2026-11-20T10:00Z, or -1h",
            param_hint="--from",
        ) from None
    # A person who types a time means that of the place, as `date` shows it.
    return moment if moment.tzinfo else moment.astimezone()
