"""``stele groups``: list, describe, configure, reset and delete groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click
import msgspec

from ..client import Client
from ..operations import group_admin as operations
from ..operations.share_queue import Redrive
from ..records import GroupDescription, TopicPartition
from .common import config_option, execute, http_connected, report_options, reset_option
from .terminal.results import confirm, print_result, table, yes_option


@click.group()
def groups() -> None:
    """List, describe, configure, reset and delete groups."""


@groups.command("list")
@report_options
def list_groups(form: str, url: str | None) -> None:
    """List all groups with their states."""
    with http_connected(url) as client:
        listed, after = client.call(operations.ListGroups())
        while after is not None:
            page, after = client.call(operations.ListGroups(after=after))
            listed += page
    width = max((len(group) for group, _ in listed), default=0)
    print_result(
        form,
        [{"group": group, "state": state} for group, state in listed],
        [f"{group:<{width}}  {state}" for group, state in listed],
    )


@groups.command()
@click.argument("group")
@report_options
def describe(group: str, form: str, url: str | None) -> None:
    """Show the members of GROUP and its lag in each partition."""
    described = execute(operations.DescribeGroup(group=group), url)
    document = msgspec.to_builtins(described)
    for member in document["members"]:
        for kind in ("assigned", "owned"):
            member[kind] = [{"topic": topic, "partition": partition} for topic, partition in member[kind]]
    print_result(form, document, _described(described))


def _described(described: GroupDescription) -> Iterator[str]:
    counted = "generation" if described.type == "classic" else "epoch"
    yield f"{described.group}: {described.state}, {counted} {described.generation}, lag {described.lag:,} records"
    for member in described.members:
        step = f"{len(member.owned)} claimed" if member.epoch is None else f"epoch {member.epoch}"
        yield (
            f"  member {member.member_id} ({member.client_id}, {member.client_host}): "
            f"{len(member.assigned)} partitions, {step}"
        )
    rows = [
        (
            f"{partition.topic}-{partition.partition}",
            "-" if partition.committed is None else str(partition.committed),
            str(partition.high_watermark),
            str(partition.lag),
            (partition.member_id or "-") if partition.in_flight is None else str(partition.in_flight),
        )
        for partition in described.partitions
    ]
    last = "in flight" if described.type == "share" else "member"
    yield from table(("partition", "committed", "end", "lag", last), rows)


@groups.command()
@click.argument("group")
@click.option(
    "--to",
    required=True,
    metavar="POSITION",
    help="earliest, latest, an offset, a time (2026-11-20T10:00Z), or a time ago (-5m, -1h, -2d).",
)
@click.option(
    "--topic", "topics", multiple=True, metavar="TOPIC", help="Reset this topic only. May be repeated."
)
@click.option("--dry-run", is_flag=True, help="Show the new offsets without setting them.")
@yes_option
@report_options
def reset(
    group: str,
    to: str,
    topics: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    form: str,
    url: str | None,
) -> None:
    """Set the committed offsets of GROUP.

    Stop the members of the group first.
    """
    with http_connected(url) as client:
        if dry_run:
            planned = _reset(client, group, to, topics, dry_run=True)
            print_result(form, _document(planned), _lines(planned))
            return
        if not yes:
            for line in _lines(_reset(client, group, to, topics, dry_run=True)):
                click.echo(line, err=form == "json")
            confirm(f"Set these offsets for group {group}?", yes=False)
        done = _reset(client, group, to, topics, dry_run=False)
    print_result(form, _document(done), [*(_lines(done) if yes else ()), f"{group}: {len(done)} offsets set"])


_Resets = list[tuple[TopicPartition, int | None, int, int]]


def _reset(client: Client, group: str, to: str, topics: tuple[str, ...], *, dry_run: bool) -> _Resets:
    return client.call(
        operations.ResetOffsets(group=group, to=to, topics=list(topics) or None, dry_run=dry_run)
    )


def _document(resets: _Resets) -> list[dict[str, Any]]:
    return [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "committed": before,
            "new": after,
            "lag": lag,
        }
        for partition, before, after, lag in resets
    ]


def _lines(resets: _Resets) -> list[str]:
    rows = [
        (str(partition), "-" if before is None else str(before), str(after), str(lag))
        for partition, before, after, lag in resets
    ]
    return table(("partition", "committed", "new", "lag"), rows)


@groups.command()
@click.argument("group")
@config_option("Set a configuration.")
@reset_option
@report_options
def configure(
    group: str, configs: dict[str, str | None], resets: tuple[str, ...], form: str, url: str | None
) -> None:
    """Set configurations of GROUP, and show those in effect.

    The group need not exist yet.
    """
    changes = configs | dict.fromkeys(resets)
    change = operations.ConfigureGroup(group=group, configs=changes)
    shown = execute(change if changes else operations.GetGroupConfigs(group=group), url)
    ordered = dict(sorted(shown.items()))
    print_result(form, ordered, [f"{name}={value}" for name, value in ordered.items()])


@groups.command()
@click.argument("group")
@report_options
def redrive(group: str, form: str, url: str | None) -> None:
    """Append the records of the dead letters of GROUP to their topics again."""
    redriven = lost = 0
    with http_connected(url) as client:
        while True:
            done = client.call(Redrive(group=group))
            redriven, lost = redriven + done.redriven, lost + done.lost
            if not done.is_more:
                break
            click.echo(f"{group}: {redriven} records redriven so far", err=True)
    print_result(
        form,
        {"group": group, "redriven": redriven, "lost": lost},
        [f"{group}: {redriven} records redriven, {lost} lost"],
    )


@groups.command()
@click.argument("group")
@yes_option
@report_options
def delete(group: str, yes: bool, form: str, url: str | None) -> None:
    """Delete GROUP and its committed offsets."""
    confirm(f"Delete group {group} and its committed offsets?", yes=yes)
    execute(operations.DeleteGroup(group=group), url)
    print_result(form, {"deleted": group}, [f"deleted group {group}"])
