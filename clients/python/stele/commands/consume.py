"""``stele consume``: print the records of a topic."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import Literal

import click

from ..calls import Isolation, now_ms
from ..consuming.consumer import Consumer
from ..wire.notation import parse_time, parse_whole
from .common import connected, url_option
from .registries import decoding, registry_option
from .terminal.outputs import Writer, partitions_option, printing, record_options


@click.command(context_settings={"ignore_unknown_options": False})
@click.argument("topic")
@partitions_option
@click.option(
    "--from",
    "start",
    default="earliest",
    show_default=True,
    metavar="POSITION",
    help="earliest, latest, an offset, a time (2026-11-20T10:00Z; UTC without a zone), or a time ago (-5m, -1h, -2d).",
)
@click.option(
    "-f", "--follow", is_flag=True, help="Wait for new records at the end of the topic, until ctrl-c."
)
@click.option(
    "--max", "max_records", type=click.IntRange(min=1), metavar="N", help="Stop after this many records."
)
@click.option(
    "--isolation",
    type=click.Choice(["read_committed", "read_uncommitted"]),
    default="read_committed",
    show_default=True,
    help="With read_uncommitted, also print records of open and aborted transactions.",
)
@record_options()
@registry_option
@url_option
def consume(
    topic: str,
    partitions: tuple[int, ...],
    start: str,
    follow: bool,
    max_records: int | None,
    isolation: Isolation,
    writer: Writer,
    raw: bool,
    registry: str | None,
    url: str | None,
) -> None:
    """Print the records of TOPIC.

    Stops at the end of the topic, unless --follow is given. Keys and values that name a schema of the
    registry are decoded and printed as JSON.

    \b
    stele consume greetings
    stele consume orders -f --from -1h --format ndjson | jq .value
    """
    left = sys.maxsize if max_records is None else max_records
    with (
        connected(url) as client,
        Consumer(
            client,
            topic,
            partitions=partitions or None,
            start=parse_start(start),
            follow=follow,
            isolation=isolation,
            outage_timeout_s=None if follow else 10.0,
        ) as consumer,
    ):
        # A broker that is down at the start is reported; after that, an outage is waited for.
        client.ping()
        with decoding(registry, url, is_raw=raw) as decoded, printing(writer) as write:
            for records in consumer.batches():
                write(decoded(records[:left]))
                left -= len(records)
                if left <= 0:
                    break


def parse_start(text: str) -> Literal["earliest", "latest"] | int | datetime:
    """Parse the value of ``--from``; an aware datetime for a time.

    Raises:
        click.BadParameter: the text has none of the forms that the help lists.
    """
    if text in ("earliest", "latest"):
        return text
    offset = parse_whole(text)
    if offset is not None:
        return offset
    at_ms = parse_time(text, now_ms())
    if at_ms is None:
        raise click.BadParameter(
            f"{text!r} is not earliest, latest, an offset, a time such as 2026-11-20T10:00Z, or -1h",
            param_hint="--from",
        )
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=at_ms)
