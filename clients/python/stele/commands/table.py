"""``stele table``: print the newest record per key of a compacted topic."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import BinaryIO

import click

from ..client import Client
from ..records import Record
from .common import connected, url_option
from .outputs import JsonArray, Writer, record_options


@click.command()
@click.argument("topic")
@click.option("--key", metavar="KEY", help="Print the record of this key only; exit with 1 if there is none.")
@click.option(
    "--partition",
    "partitions",
    type=int,
    metavar="N",
    multiple=True,
    help="Read this partition only. May be repeated.  [default: all]",
)
@click.option(
    "-f",
    "--follow",
    is_flag=True,
    help="Print changes as they come, until ctrl-c; a null value deletes the key.",
)
@record_options(always={"key"})
@url_option
def table(
    topic: str,
    key: str | None,
    partitions: tuple[int, ...],
    follow: bool,
    writer: Writer,
    url: str | None,
) -> None:
    """Print the newest record of every key of TOPIC, which must be compacted.

    Text shows the key and the value of each record. Deleted keys are left out.

    \b
    stele table users
    stele table users --key ada
    stele table users -f --format ndjson | jq .value
    """
    if key is not None and follow:
        raise click.UsageError("--key prints one record, and --follow changes; give one of the two")
    if key is not None and len(partitions) > 1:
        raise click.UsageError("--key looks in one partition or in all; give --partition once, or not at all")
    out = sys.stdout.buffer
    with connected(url) as client:
        try:
            if key is not None:
                _print(_look_up(client, topic, key, partitions), writer, out)
                _end(writer, out)
            else:
                _print_table(client, topic, partitions, follow, writer, out)
        except BrokenPipeError:
            # The reader, such as `head`, has closed the pipe. The interpreter flushes stdout at exit: not into it.
            os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())


def _look_up(client: Client, topic: str, key: str, partitions: tuple[int, ...]) -> list[Record[bytes]]:
    record = client.lookup(topic, key, partition=partitions[0] if partitions else None)
    if record is None:
        raise click.ClickException(f"topic {topic!r} has no key {key!r}, or it was deleted")
    return [record]


def _print_table(
    client: Client,
    topic: str,
    partitions: tuple[int, ...],
    follow: bool,
    writer: Writer,
    out: BinaryIO,
) -> None:
    # A broker that is down at the start is reported; after that, an outage is waited for.
    client.ping()
    with client.table(topic, partitions=partitions or None, follow=follow) as rows:
        try:
            changes = rows.changes()
            _print(sorted(rows.records(), key=lambda record: (record.partition, record.offset)), writer, out)
            if not follow:
                return
            for change in changes:
                # A key that retention removed has no record to print.
                if change.record is not None:
                    _print([change.record], writer, out)
        finally:
            _end(writer, out)


def _print(records: Iterable[Record[bytes]], writer: Writer, out: BinaryIO) -> None:
    for record in records:
        out.write(writer(record))
    out.flush()


def _end(writer: Writer, out: BinaryIO) -> None:
    if isinstance(writer, JsonArray):
        out.write(writer.end())
        out.flush()
