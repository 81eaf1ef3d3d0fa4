"""``stele table``: print the newest record per key of a compacted topic."""

from __future__ import annotations

import click

from .common import connected, url_option
from .registries import decoding, registry_option
from .terminal.outputs import Writer, partitions_option, printing, record_options


@click.command()
@click.argument("topic")
@click.option("--key", metavar="KEY", help="Print the record of this key only; exit with 1 if there is none.")
@partitions_option
@click.option(
    "-f",
    "--follow",
    is_flag=True,
    help="Print changes as they come, until ctrl-c; a null value deletes the key.",
)
@record_options(always={"key"})
@registry_option
@url_option
def table(
    topic: str,
    key: str | None,
    partitions: tuple[int, ...],
    follow: bool,
    writer: Writer,
    raw: bool,
    registry: str | None,
    url: str | None,
) -> None:
    """Print the newest record of every key of TOPIC, which must be compacted.

    Text shows the key and the value of each record. Deleted keys are left out. Keys and values that name
    a schema of the registry are decoded and printed as JSON.

    \b
    stele table users
    stele table users --key ada
    stele table users -f --format ndjson | jq .value
    """
    if key is not None and follow:
        raise click.UsageError("--key prints one record, and --follow changes; give one of the two")
    if key is not None and len(partitions) > 1:
        raise click.UsageError("--key looks in one partition or in all; give --partition once, or not at all")
    with connected(url) as client, decoding(registry, url, is_raw=raw) as decoded:
        if key is not None:
            record = client.lookup(topic, key, partition=partitions[0] if partitions else None)
            if record is None:
                raise click.ClickException(f"topic {topic!r} has no key {key!r}, or it was deleted")
            with printing(writer) as write:
                write(decoded([record]))
            return
        # A broker that is down at the start is reported; after that, an outage is waited for.
        client.ping()
        with (
            client.table(topic, partitions=partitions or None, follow=follow) as rows,
            printing(writer) as write,
        ):
            changes = rows.changes()
            write(decoded(sorted(rows.records(), key=lambda record: (record.partition, record.offset))))
            for change in changes if follow else ():
                # A key that retention removed has no record to print.
                if change.record is not None:
                    write(decoded([change.record]))
