"""``stele mirror``: copy topics from or to another Kafka cluster with their offsets, and promote copies."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TextIO, TypeVar

import click

from ..operations import mirror_admin as operations
from .common import execute, report_options
from .terminal.results import confirm, plural, print_result, table, yes_option

F = TypeVar("F", bound=Callable[..., Any])


def _options(command: F) -> F:
    """Add ``--format``, ``--json`` and ``--url``."""
    return click.option("--json", "is_json", is_flag=True, help="The same as --format json.")(
        report_options(command)
    )


def _form(form: str, is_json: bool) -> str:
    return "json" if is_json else form


@click.group()
def mirror() -> None:
    """Copy topics from or to another Kafka cluster with their offsets, and promote copies."""


@mirror.command("create")
@click.argument("name")
@click.option("--from", "origin", metavar="HOST:PORT,...", help="Copy from this cluster to the broker.")
@click.option("--to", metavar="HOST:PORT,...", help="Copy from the broker to this cluster.")
@click.option("--topics", required=True, metavar="REGEX", help="Topics to copy: whole names match.")
@click.option("--groups", metavar="REGEX", help="Groups whose committed offsets are copied.  [default: none]")
@click.option("--acls", is_flag=True, help="Also copy access rules and quotas.")
@click.option(
    "--source-config",
    type=click.File("r"),
    metavar="FILE",
    help="Properties of the connection to the source, such as sasl.mechanism=PLAIN, one per line.",
)
@click.option(
    "--target-config", type=click.File("r"), metavar="FILE", help="The same of the target, with --to."
)
@click.option(
    "--offsets",
    type=click.Choice(["equal", "translate"]),
    default="equal",
    show_default=True,
    help="With --to: keep offsets where that is possible, or copy all topics and translate committed offsets.",
)
@click.option(
    "--rate", type=click.IntRange(min=1024), metavar="BYTES", help="Limit of all copying per second."
)
@click.option("--replace", is_flag=True, help="Change the mirror if there is one of this name.")
@_options
def create(
    name: str,
    origin: str | None,
    to: str | None,
    topics: str,
    groups: str | None,
    acls: bool,
    source_config: TextIO | None,
    target_config: TextIO | None,
    offsets: str,
    rate: int | None,
    replace: bool,
    form: str,
    is_json: bool,
    url: str | None,
) -> None:
    """Copy topics of another Kafka cluster, or to one, with the offsets that they have.

    Copies from there are read-only until they are promoted. Secrets in FILE are ${env:STELE_MIRROR_SECRET_NAME}, a
    variable of the broker's environment, or ${file:NAME}, a file in its directory STELE_MIRROR_SECRETS_DIR.

        stele mirror create prod --from kafka:9092 --topics 'orders\\..*'
    """
    if (origin is None) == (to is None):
        raise click.UsageError("give --from, the cluster to copy from, or --to, the cluster to copy to")
    if not replace and any(known["name"] == name for known in execute(operations.ListMirrors(), url)):
        raise click.ClickException(f"there is a mirror {name!r} already; change it with --replace")
    document = {
        "from": origin,
        "to": to,
        "topics": topics,
        "groups": groups,
        "acls": acls,
        "source": {} if source_config is None else _properties(source_config),
        "target": {} if target_config is None else _properties(target_config),
        "offsets": offsets,
        "rate": rate,
    }
    made = execute(operations.PutMirror(name=name, document=document), url)
    print_result(
        _form(form, is_json),
        made,
        [f"mirror {name} copies {topics} {_where(document)}; see: stele mirror status {name}"],
    )


def _where(definition: Mapping[str, Any]) -> str:
    return f"from {definition['from']}" if definition["from"] else f"to {definition['to']}"


def _properties(file: TextIO) -> dict[str, str]:
    """Read ``NAME=VALUE`` lines; ``#`` and ``!`` begin comments, as in Java's files of properties."""
    properties: dict[str, str] = {}
    for number, line in enumerate(file, 1):
        text = line.strip()
        if text and text[0] not in "#!":
            key, equals, value = text.partition("=")
            if not equals:
                raise click.UsageError(f"line {number} of {file.name} is not NAME=VALUE")
            properties[key.strip()] = value.strip()
    return properties


@mirror.command("list")
@_options
def list_mirrors(form: str, is_json: bool, url: str | None) -> None:
    """List mirrors and how far they are."""
    listed = execute(operations.ListMirrors(), url)
    rows = [
        [
            one["name"],
            _where(one["definition"]),
            one["definition"]["topics"],
            one["state"],
            _number(one.get("lag")),
        ]
        for one in listed
    ]
    lines = table(["mirror", "cluster", "topics", "state", "lag"], rows) if rows else ["there is no mirror"]
    print_result(_form(form, is_json), listed, lines)


@mirror.command("status")
@click.argument("name")
@_options
def status(name: str, form: str, is_json: bool, url: str | None) -> None:
    """Show how far a mirror is: state and lag in all and per partition, and what could not be copied."""
    shown = execute(operations.GetMirror(name=name), url)
    print_result(_form(form, is_json), shown, _status_lines(shown))


def _status_lines(shown: Mapping[str, Any]) -> Iterator[str]:
    seconds = f", {shown['lag_seconds']:.0f} seconds" if "lag_seconds" in shown else ""
    yield f"{shown['name']} is {shown['state']}, lag {_number(shown.get('lag'))} records{seconds}"
    if shown.get("last_error"):
        yield f"last error: {shown['last_error']}"
    rows = [
        [
            f"{topic['topic']}-{part['partition']}",
            part["state"],
            _number(part["offset"]),
            _number(part["source_end"]),
            _number(part["lag"]),
        ]
        for topic in shown.get("topics", ())
        for part in topic["partitions"]
    ]
    if rows:
        yield from table(["partition", "state", "offset", "end of source", "lag"], rows)
    for topic in shown.get("topics", ()):
        for part in topic["partitions"]:
            if part.get("error"):
                yield f"{topic['topic']}-{part['partition']}: {part['error']}"
    for reason in shown.get("not_copied", ()):
        yield f"not copied: {reason}"


def _number(number: int | None) -> str:
    return "?" if number is None else str(number)


def _changed(name: str, url: str | None, *, paused: bool) -> dict[str, Any]:
    document = dict(execute(operations.GetMirror(name=name), url)["definition"])
    document.pop("name")
    return execute(operations.PutMirror(name=name, document={**document, "paused": paused}), url)


@mirror.command("pause")
@click.argument("name")
@_options
def pause(name: str, form: str, is_json: bool, url: str | None) -> None:
    """Let a mirror rest; its copies here stay read-only."""
    print_result(_form(form, is_json), _changed(name, url, paused=True), [f"mirror {name} is paused"])


@mirror.command("resume")
@click.argument("name")
@_options
def resume(name: str, form: str, is_json: bool, url: str | None) -> None:
    """Let a paused mirror go on where its copies end."""
    print_result(_form(form, is_json), _changed(name, url, paused=False), [f"mirror {name} goes on"])


@mirror.command("promote")
@click.argument("name")
@click.option("--topic", help="Promote this copy alone.  [default: all, and the mirror is deleted]")
@yes_option
@_options
def promote(name: str, topic: str | None, yes: bool, form: str, is_json: bool, url: str | None) -> None:
    """Make ordinary topics of copies, at the offsets that they have.

    Stop the producers and wait until the mirror is level: what the source gets afterwards is not copied.
    """
    shown = execute(operations.GetMirror(name=name), url)
    if shown["state"] != "level":
        click.echo(
            f"mirror {name} is {shown['state']}, {_number(shown.get('lag'))} records behind: they stay behind",
            err=True,
        )
    confirm(f"Promote {topic or 'all copies'} of mirror {name}?", yes=yes)
    promoted = execute(operations.PromoteMirror(name=name, topic=topic), url)
    if promoted["unfinished"]:
        click.echo(f"not all of the source may be copied: {promoted['unfinished']}", err=True)
    print_result(_form(form, is_json), promoted, _promoted_lines(promoted["promoted"]))


def _promoted_lines(promoted: list[dict[str, Any]]) -> Iterator[str]:
    yield f"promoted {plural(len(promoted), 'topic')}"
    for one in promoted:
        aborted = one["aborted_transactions"]
        yield f"  {one['topic']}" + (
            f": aborted {plural(len(aborted), 'open transaction')}" if aborted else ""
        )


@mirror.command("truncate")
@click.argument("name")
@click.option("--topic", help="Cut this copy alone.  [default: all that have diverged]")
@yes_option
@_options
def truncate(name: str, topic: str | None, yes: bool, form: str, is_json: bool, url: str | None) -> None:
    """Cut copies that have diverged back to what their source has, too, and go on.

    The records that the source has lost are deleted here. Committed offsets past the new ends are moved there.
    """
    shown = execute(operations.GetMirror(name=name), url)
    for each in shown.get("topics", ()):
        for part in each["partitions"]:
            if topic in (None, each["topic"]) and (end := part.get("common_end")) is not None:
                click.echo(
                    f"{each['topic']}-{part['partition']} ends at {part['offset']}: cut to {end}", err=True
                )
    confirm(f"Cut back {topic or 'all diverged copies'} of mirror {name}?", yes=yes)
    cut = execute(operations.TruncateMirror(name=name, topic=topic), url)
    lines = [
        f"{one['topic']}-{one['partition']} was cut from {one['before']} to {one['after']}"
        + (f"; moved {plural(len(one['groups']), 'group')}" if one["groups"] else "")
        for one in cut
    ]
    print_result(_form(form, is_json), {"truncated": cut}, lines or ["no copy has diverged"])


@mirror.command("delete")
@click.argument("name")
@yes_option
@_options
def delete(name: str, yes: bool, form: str, is_json: bool, url: str | None) -> None:
    """Stop and forget a mirror; its copies stay, those here read-only."""
    confirm(f"Delete mirror {name}?", yes=yes)
    execute(operations.DeleteMirror(name=name), url)
    print_result(
        _form(form, is_json),
        {"deleted": name},
        [f"mirror {name} is deleted; its copies stay, those here read-only"],
    )


@mirror.command("run", hidden=True)
@click.option("--supervised", is_flag=True, required=True)
def run(supervised: bool) -> None:
    """Copy what the broker that starts this process asks for."""
    from ..mirror.run import main

    sys.exit(main())
