"""``stele groups``: list, describe, configure, reset and delete groups."""

from __future__ import annotations

from typing import Any

import click

from ..client import Client
from ..operations import group_admin as operations
from ..operations.share_queue import Redrive
from .common import connected, http_url, http_url_option, parse_configs


@click.group()
def groups() -> None:
    """List, describe, configure, reset and delete groups."""


@groups.command("list")
@http_url_option
def list_groups(url: str | None) -> None:
    """List all groups with their states."""
    with connected(http_url(url)) as client:
        listed, after = client.call(operations.ListGroups())
        while after is not None:
            page, after = client.call(operations.ListGroups(after=after))
            listed += page
    width = max((len(group) for group, _ in listed), default=0)
    for group, state in listed:
        click.echo(f"{group:<{width}}  {state}")


@groups.command()
@click.argument("group")
@http_url_option
def describe(group: str, url: str | None) -> None:
    """Show the members of GROUP and its lag in each partition."""
    with connected(http_url(url)) as client:
        described = client.call(operations.DescribeGroup(group=group))
    counted = "generation" if described.type == "classic" else "epoch"
    click.echo(
        f"{described.group}: {described.state}, {counted} {described.generation}, lag {described.lag:,} records"
    )
    for member in described.members:
        step = f"{len(member.owned)} claimed" if member.epoch is None else f"epoch {member.epoch}"
        click.echo(
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
    _table(("partition", "committed", "end", "lag", last), rows)


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
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@http_url_option
def reset(group: str, to: str, topics: tuple[str, ...], dry_run: bool, yes: bool, url: str | None) -> None:
    """Set the committed offsets of GROUP.

    Stop the members of the group first.
    """
    with connected(http_url(url)) as client:
        if dry_run or not yes:
            _show(_reset(client, group, to, topics, dry_run=True))
        if dry_run:
            return
        if not yes:
            click.confirm(f"Set these offsets for group {group}?", abort=True)
        done = _reset(client, group, to, topics, dry_run=False)
        if yes:
            _show(done)
    click.echo(f"{group}: {len(done)} offsets set")


_Resets = list[tuple[Any, int | None, int, int]]


def _reset(client: Client, group: str, to: str, topics: tuple[str, ...], *, dry_run: bool) -> _Resets:
    return client.call(
        operations.ResetOffsets(group=group, to=to, topics=list(topics) or None, dry_run=dry_run)
    )


def _show(resets: _Resets) -> None:
    rows = [
        (str(partition), "-" if before is None else str(before), str(after), str(lag))
        for partition, before, after, lag in resets
    ]
    _table(("partition", "committed", "new", "lag"), rows)


@groups.command()
@click.argument("group")
@click.option(
    "--config", "configs", multiple=True, metavar="NAME=VALUE", help="Set a configuration. May be repeated."
)
@click.option(
    "--reset",
    "resets",
    multiple=True,
    metavar="NAME",
    help="Reset a configuration to its default. May be repeated.",
)
@http_url_option
def configure(group: str, configs: tuple[str, ...], resets: tuple[str, ...], url: str | None) -> None:
    """Set configurations of GROUP, and show those in effect.

    The group need not exist yet.
    """
    changes: dict[str, str | None] = {**parse_configs(configs), **dict.fromkeys(resets)}
    with connected(http_url(url)) as client:
        if changes:
            shown = client.call(operations.ConfigureGroup(group=group, configs=changes))
        else:
            shown = client.call(operations.GetGroupConfigs(group=group))
    for name, value in sorted(shown.items()):
        click.echo(f"{name}={value}")


@groups.command()
@click.argument("group")
@http_url_option
def redrive(group: str, url: str | None) -> None:
    """Append the records of the dead letters of GROUP to their topics again."""
    redriven = lost = 0
    with connected(http_url(url)) as client:
        while True:
            done = client.call(Redrive(group=group))
            redriven, lost = redriven + done.redriven, lost + done.lost
            if not done.is_more:
                break
            click.echo(f"{group}: {redriven} records redriven so far", err=True)
    click.echo(f"{group}: {redriven} records redriven, {lost} lost")


@groups.command()
@click.argument("group")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@http_url_option
def delete(group: str, yes: bool, url: str | None) -> None:
    """Delete GROUP and its committed offsets."""
    if not yes:
        click.confirm(f"Delete group {group} and its committed offsets?", abort=True)
    with connected(http_url(url)) as client:
        client.call(operations.DeleteGroup(group=group))
    click.echo(f"deleted group {group}")


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    for row in (head, *rows):
        first, *rest = row
        cells = [
            f"{first:<{widths[0]}}",
            *(f"{text:>{width}}" for text, width in zip(rest, widths[1:], strict=True)),
        ]
        click.echo("  " + "  ".join(cells))
