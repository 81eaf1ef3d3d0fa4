"""``stele produce``: write records from a file or standard input."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import BinaryIO, Literal

import click
import msgspec

from ..errors import ProduceError
from ..producing.producer import Producer
from ..records import NewRecord
from ..schemas.definitions import InvalidValue
from ..wire.compression import Compression
from .common import connected, url_option
from .registries import encoder, registry_connected, registry_option
from .terminal.inputs import Input, csv_rows, lines, ndjson
from .terminal.progress import Progress

_SYNC = {"all": "on disk", "1": "appended", "0": "sent"}


@click.command()
@click.argument("topic")
@click.argument("file", type=click.File("rb"), default="-")
@click.option(
    "--format",
    "form",
    type=click.Choice(["lines", "ndjson", "csv"]),
    help="Format of the input.  [default: by the extension of FILE (.ndjson, .jsonl, .csv), otherwise lines]",
)
@click.option(
    "--key-field",
    metavar="NAME",
    help="Field of each JSON object, or column of the CSV file, to use as the key.",
)
@click.option("--key-separator", metavar="TEXT", help="Separator between key and value, for --format lines.")
@click.option(
    "--partition",
    type=click.IntRange(min=0),
    metavar="N",
    help="Write all records to this partition.  [default: by key]",
)
@click.option(
    "--acks",
    type=click.Choice(["all", "1", "0"]),
    default="all",
    show_default=True,
    help="Wait until a record is synced to disk (all), appended (1), or only sent (0).",
)
@click.option(
    "--compression",
    type=click.Choice([codec.name.lower() for codec in Compression]),
    default="none",
    show_default=True,
    help="Compression of the batches; over stele:// only.",
)
@click.option(
    "--schema",
    metavar="latest|ID|FILE",
    help="Encode each value, which is JSON, with a schema: the latest of the subject, the one with this id, "
    "or the one in FILE (.avsc, .json, .proto), which is registered.",
)
@click.option("--subject", metavar="NAME", help="Subject of --schema.  [default: TOPIC-value]")
@registry_option
@click.option(
    "--if-end",
    "expected_end",
    type=click.IntRange(min=0),
    metavar="OFFSET",
    help="Write the records only if the partition ends at OFFSET, all of them or none; needs --partition.",
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
    schema: str | None,
    subject: str | None,
    registry: str | None,
    expected_end: int | None,
    url: str | None,
) -> None:
    """Write records to TOPIC, from FILE or standard input.

    \b
    echo hello | stele produce greetings
    stele produce orders orders.ndjson --key-field customer
    stele produce orders orders.ndjson --schema order.avsc
    """
    form = form or _format_of(getattr(file, "name", ""))
    if key_separator and form != "lines":
        raise click.UsageError("--key-separator works with --format lines only; use --key-field")
    if key_field and form == "lines":
        raise click.UsageError("--key-field works with --format ndjson and csv only; use --key-separator")
    if expected_end is not None:
        if partition is None:
            raise click.UsageError("--if-end is the end of one partition; give --partition, too")
        with connected(url) as client, _encoding(topic, schema, subject, registry, url) as encoded:
            receipts = client.produce_many(
                topic,
                [
                    NewRecord(record.value, key=record.key, partition=partition)
                    for record in encoded(_inputs(file, form, key_field, key_separator))
                ],
                acks=acks,
                compression=Compression[compression.upper()],
                expected_end=expected_end,
            )
        click.echo(f"{len(receipts):,} records {_SYNC[acks]} from offset {expected_end} on", err=True)
        return
    started_s = time.monotonic()
    count = 0
    with (
        connected(url) as client,
        _encoding(topic, schema, subject, registry, url) as encoded,
        Progress(_size(file)) as progress,
        Producer(
            client, topic, acks=acks, compression=Compression[compression.upper()], linger_ms=5
        ) as producer,
    ):
        try:
            for record in encoded(_inputs(file, form, key_field, key_separator)):
                producer.send(record.value, key=record.key, partition=partition)
                count += 1
                progress.advance(record.consumed_bytes)
            producer.flush()
        except KeyboardInterrupt:
            # Deliver what was accepted, if that takes no longer than a few seconds.
            producer.close(timeout_s=5)
            raise
        except ProduceError as error:
            failed = ", ".join(str(index + 1) for index in list(error.errors)[:5])
            raise click.ClickException(f"{error} (record {failed}{'…' * (len(error.errors) > 5)})") from error
    seconds = max(time.monotonic() - started_s, 1e-6)
    click.echo(f"{count:,} records {_SYNC[acks]} in {seconds:.1f} s ({count / seconds:,.0f}/s)", err=True)


@contextmanager
def _encoding(
    topic: str, schema: str | None, subject: str | None, registry: str | None, url: str | None
) -> Generator[Callable[[Iterator[Input]], Iterator[Input]]]:
    """Yield a function that encodes the values of records with ``--schema``."""
    if schema is None:
        if subject is not None or registry is not None:
            raise click.UsageError("--subject and --registry need --schema")
        yield lambda records: records
        return
    with registry_connected(registry, url) as client:
        serializer = encoder(client, topic, schema, subject)

        def encoded(records: Iterator[Input]) -> Iterator[Input]:
            for number, record in enumerate(records, 1):
                try:
                    value = serializer(msgspec.json.decode(record.value))
                except (msgspec.DecodeError, InvalidValue) as error:
                    raise click.ClickException(f"record {number} cannot be encoded: {error}") from error
                yield record._replace(value=value)

        yield encoded


def _format_of(name: object) -> str:
    name = str(name).lower()
    if name.endswith((".ndjson", ".jsonl")):
        return "ndjson"
    return "csv" if name.endswith(".csv") else "lines"


def _inputs(file: BinaryIO, form: str, key_field: str | None, key_separator: str | None) -> Iterator[Input]:
    if form == "ndjson":
        return ndjson(file, key_field)
    if form == "csv":
        return csv_rows(file, key_field)
    return lines(file, key_separator)


def _size(file: BinaryIO) -> int | None:
    """Return the size of a regular file in bytes; None for a pipe."""
    if file is sys.stdin.buffer or not file.seekable():
        return None
    end = file.seek(0, io.SEEK_END)
    file.seek(0)
    return end
