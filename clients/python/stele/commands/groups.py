"""``stele groups``: who reads what, how far behind, and from where on."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

from ..client import Client
from ..config import url_from_environment
from ..operations import group_admin as operations
from .common import connected

F = TypeVar("F", bound=Callable[..., Any])
_DEFAULT_URL = "http://127.0.0.1:8080"


def _url_option(command: F) -> F:
    return click.option(
        "--url",
        metavar="URL",
        help=f"The broker's HTTP listener. [env: STELE_URL; default: {_DEFAULT_URL}]",
    )(command)


def _url(url: str | None) -> str:
    if url is None and "STELE_URL" not in os.environ:
        return _DEFAULT_URL
    return url_from_environment() if url is None else url


@click.group()
def groups() -> None:
    """List and describe consumer groups, and reset their offsets."""


@groups.command("list")
@_url_option
def list_groups(url: str | None) -> None:
    """Names and states."""
    with connected(_url(url)) as client:
        found, after = client.call(operations.ListGroups())
        while after is not None:
            page, after = client.call(operations.ListGroups(after=after))
            found += page
    width = max((len(group) for group, _ in found), default=0)
    for group, state in found:
        click.echo(f"{group:<{width}}  {state}")


@groups.command()
@click.argument("group")
@_url_option
def describe(group: str, url: str | None) -> None:
    """Show GROUP's members, and how far it is behind in each partition."""
    with connected(_url(url)) as client:
        described = client.call(operations.DescribeGroup(group=group))
    click.echo(
        f"{described.group}: {described.state}, generation {described.generation}, lag {described.lag:,} records"
    )
    for member in described.members:
        click.echo(
            f"  member {member.member_id} ({member.client_id}, {member.client_host}): "
            f"{len(member.assigned)} partitions, {len(member.owned)} claimed"
        )
    rows = [
        (
            f"{one.topic}-{one.partition}",
            "-" if one.committed is None else str(one.committed),
            str(one.high_watermark),
            str(one.lag),
            one.member_id or "-",
        )
        for one in described.partitions
    ]
    _table(("partition", "committed", "end", "lag", "member"), rows)


@groups.command()
@click.argument("group")
@click.option("--to", required=True, metavar="WHERE", help="earliest, latest, an offset, a time, or -1h.")
@click.option("--topic", "topics", multiple=True, help="Only this; more than once for several.")
@click.option("--dry-run", is_flag=True, help="Only show what would be.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@_url_option
def reset(group: str, to: str, topics: tuple[str, ...], dry_run: bool, yes: bool, url: str | None) -> None:
    """Set where GROUP goes on, after its members have stopped."""
    with connected(_url(url)) as client:
        if dry_run or not yes:
            _show(_reset(client, group, to, topics, dry_run=True))
        if dry_run:
            return
        if not yes:
            click.confirm(f"Set the offsets of {group} so?", abort=True)
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
    _table(("partition", "committed", "will be", "lag"), rows)


@groups.command()
@click.argument("group")
@click.option("--yes", is_flag=True, help="Do not ask.")
@_url_option
def delete(group: str, yes: bool, url: str | None) -> None:
    """Delete GROUP and its committed offsets."""
    if not yes:
        click.confirm(f"Delete group {group} and its offsets?", abort=True)
    with connected(_url(url)) as client:
        client.call(operations.DeleteGroup(group=group))
    click.echo(f"{group} deleted")


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    widths = [max(len(row[place]) for row in (head, *rows)) for place in range(len(head))]
    for row in (head, *rows):
        first, *rest = row
        cells = [
            f"{first:<{widths[0]}}",
            *(f"{text:>{width}}" for text, width in zip(rest, widths[1:], strict=True)),
        ]
        click.echo("  " + "  ".join(cells))
