"""``stele produce``: store records from a file or standard input."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Iterator
from typing import BinaryIO, Literal

import click

from ..errors import ProduceError
from ..producing.producer import Producer
from ..wire.compression import Compression
from .common import connected, url_option
from .inputs import Input, csv_rows, lines, ndjson
from .progress import Progress

_SYNC = {"all": "on disk", "1": "appended", "0": "sent"}


@click.command()
@click.argument("topic")
@click.argument("file", type=click.File("rb"), default="-")
@click.option(
    "--format",
    "form",
    type=click.Choice(["lines", "ndjson", "csv"]),
    help="[default: by FILE's name, else lines]",
)
@click.option(
    "--key-field", metavar="NAME", help="The field of a JSON object, or the column, that is the key."
)
@click.option("--key-separator", metavar="TEXT", help="Lines are KEY, this, VALUE.")
@click.option("--partition", type=click.IntRange(min=0), help="Store all in this partition.")
@click.option("--acks", type=click.Choice(["all", "1", "0"]), default="all", show_default=True)
@click.option(
    "--compression",
    type=click.Choice([codec.name.lower() for codec in Compression]),
    default="none",
    show_default=True,
    help="Of the batches, over the binary protocol.",
)
@url_option
def produce(
    topic: str,
    file: BinaryIO,
    form: str | None,
    key_field: str | None,
    key_separator: str | None,
    partition: int | None,
    acks: Literal["all", "1", "0"],
    compression: str,
    url: str | None,
) -> None:
    """Store records in TOPIC, from FILE or standard input.

    \b
    echo hello | stele produce greetings
    stele produce orders orders.ndjson --key-field customer
    """
    form = form or _form_of(getattr(file, "name", ""))
    if key_separator and form != "lines":
        raise click.UsageError("--key-separator is for --format lines; use --key-field")
    if key_field and form == "lines":
        raise click.UsageError("--key-field is for --format ndjson and csv; use --key-separator")
    started_s = time.monotonic()
    count = 0
    with (
        connected(url) as client,
        Progress(_size(file)) as progress,
        Producer(
            client, topic, acks=acks, compression=Compression[compression.upper()], linger_ms=5
        ) as producer,
    ):
        try:
            for entry in _entries(file, form, key_field, key_separator):
                producer.enqueue(entry.value, key=entry.key, partition=partition)
                count += 1
                progress.advance(entry.consumed_bytes)
            producer.flush()
        except KeyboardInterrupt:
            # What was accepted is still delivered, if that goes quickly.
            producer.close(timeout_s=5)
            raise
        except ProduceError as error:
            failed = ", ".join(str(index + 1) for index in list(error.errors)[:5])
            raise click.ClickException(f"{error} (record {failed}{'…' * (len(error.errors) > 5)})") from error
    seconds = max(time.monotonic() - started_s, 1e-6)
    click.echo(f"{count:,} records {_SYNC[acks]} in {seconds:.1f} s ({count / seconds:,.0f}/s)", err=True)


def _form_of(name: object) -> str:
    name = str(name).lower()
    if name.endswith((".ndjson", ".jsonl")):
        return "ndjson"
    return "csv" if name.endswith(".csv") else "lines"


def _entries(file: BinaryIO, form: str, key_field: str | None, key_separator: str | None) -> Iterator[Input]:
    if form == "ndjson":
        return ndjson(file, key_field)
    if form == "csv":
        return csv_rows(file, key_field)
    return lines(file, key_separator)


def _size(file: BinaryIO) -> int | None:
    """Bytes of a regular file; None for a pipe."""
    if file is sys.stdin.buffer or not file.seekable():
        return None
    end = file.seek(0, io.SEEK_END)
    file.seek(0)
    return end
