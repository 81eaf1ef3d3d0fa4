"""``stele restore`` and ``stele replica``: data directories from a replica in a bucket, and looks at it."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import click

from ..operations.replica import GetReplica
from ..wire.notation import parse_time, parse_whole
from .common import execute, login_options
from .server import server_module
from .terminal.outputs import iso
from .terminal.progress import ByteProgress
from .terminal.results import format_option, print_result, table

F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R")

# Damaged pieces that are shown as text.
_PROBLEMS_MAX = 20


def _to_option(text: str) -> Callable[[F], F]:
    return click.option(
        "--to",
        "to_ms",
        metavar="TIME",
        callback=_parse_to,
        help=f"{text}: ISO 8601, in UTC without a zone, such as 2026-11-28T10:31Z; -15m for a time ago; or ms "
        "since 1970.  [default: the newest]",
    )


def _parse_to(_context: click.Context, _parameter: click.Parameter, text: str | None) -> int | None:
    if text is None:
        return None
    whole = parse_whole(text)
    at_ms = whole if whole is not None else parse_time(text, time.time_ns() // 1_000_000)
    if at_ms is None:
        raise click.BadParameter(
            f"{text!r} is no time such as 2026-11-28T10:31Z, -15m, or 1764325860000 in ms since 1970"
        )
    return at_ms


@click.command()
@click.argument("url")
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Directory to make; it must be empty, or not exist.",
)
@_to_option("Go back to the newest moment of the replica that is not after TIME")
@click.option("--topic", "topics", multiple=True, metavar="NAME", help="Only this topic. May be repeated.")
@click.option(
    "--list", "lists", is_flag=True, help="Print the moments that can be restored, and restore nothing."
)
@format_option
def restore(
    url: str, data_dir: Path | None, to_ms: int | None, topics: tuple[str, ...], lists: bool, form: str
) -> None:
    """Restore a data directory from the replica at URL.

    URL is that of stele serve --replicate-to. Everything is verified, and the
    directory appears when it is complete. With --topic, consumer groups and
    transactional ids are left out; users, access rules and configurations are not.

    \b
        stele restore s3://backups/stele --data-dir data
        stele restore s3://backups/stele --data-dir data --to 2026-11-28T10:31Z
    """
    if lists:
        summary = _run(server_module("restoring").summarize(url))
        print_result(form, _summary_document(url, summary), _list_lines(summary))
        return
    if data_dir is None:
        raise click.UsageError(
            "name the directory to make with --data-dir, or look at the moments with --list"
        )
    begun_s = time.monotonic()
    with ByteProgress() as progress:
        restored = _run(
            server_module("restoring").restore(
                url, data_dir.absolute(), advance=progress.show, to_ms=to_ms, topics=frozenset(topics) or None
            )
        )
    seconds = time.monotonic() - begun_s
    print_result(
        form,
        {
            "data_dir": str(data_dir.absolute()),
            "at": restored.time_ms,
            "sequence": restored.sequence,
            "generation": restored.generation,
            "topics": restored.topics,
            "partitions": restored.partitions,
            "bytes": restored.size,
            "seconds": round(seconds, 3),
        },
        [
            f"{data_dir} is as of {iso(restored.time_ms)}: {restored.topics} topics, {restored.partitions} partitions, "
            f"{restored.size:,} bytes in {seconds:.1f} s",
            f"start it with: stele serve --data-dir {data_dir}",
        ],
    )


@click.group()
def replica() -> None:
    """Show and verify the replica of a broker in a bucket."""


@replica.command()
@click.argument("url", required=False)
@click.option("--server", metavar="HTTP_URL", help="Ask the broker with this HTTP listener instead.")
@login_options
@format_option
def status(url: str | None, server: str | None, form: str) -> None:
    """Show what the replica at URL has, or what a broker says of its own.

    \b
        stele replica status s3://backups/stele
        stele replica status --server http://127.0.0.1:8080
    """
    if (url is None) == (server is None):
        raise click.UsageError("pass the URL of a replica, or --server with the URL of a broker")
    if server is not None:
        document = execute(GetReplica(), server)
        print_result(form, document, _server_lines(document))
        return
    assert url is not None
    summary = _run(server_module("restoring").summarize(url))
    print_result(form, _summary_document(url, summary), _status_lines(summary))


@replica.command()
@click.argument("url")
@_to_option("Verify the newest moment that is not after TIME")
@format_option
def verify(url: str, to_ms: int | None, form: str) -> None:
    """Read and check everything that a restore from URL would read.

    Exits with 1 if something is missing or damaged.
    """
    with ByteProgress() as progress:
        verified = _run(server_module("restoring").verify(url, advance=progress.show, to_ms=to_ms))
    problems = [
        {"object": one.piece.object, "of": one.piece.file.owner, "problem": one.problem}
        for one in verified.damaged
    ]
    document = {
        "at": verified.header.time_ms,
        "sequence": verified.header.sequence,
        "objects": verified.objects,
        "bytes": verified.size,
        "problems": problems,
    }
    print_result(form, document, _verify_lines(verified))
    if problems:
        click.echo(f"{len(problems)} problems; a restore to an earlier time may be possible", err=True)
        sys.exit(1)


def _run(work: Coroutine[Any, Any, R]) -> R:
    problems = server_module("storage.setup_problems")
    try:
        return asyncio.run(work)
    except problems.InvalidStorage as error:
        raise click.ClickException(str(error)) from error


def _summary_document(url: str, summary: Any) -> dict[str, Any]:
    newest = summary.newest
    return {
        "url": url,
        "cluster_id": newest.cluster_id,
        "newest_cut": {"sequence": newest.sequence, "at": newest.time_ms},
        "oldest_restorable_at": summary.oldest_ms,
        "topics": _known(summary.topics),
        "partitions": _known(summary.partitions),
        "replica_bytes": _known(summary.size),
        "problem": summary.problem,
        "generations": [
            {"generation": one.number, "first_at": one.first_ms, "last_at": one.last_ms, "cuts": one.cuts}
            for one in summary.generations
        ],
    }


def _known(number: int) -> int | None:
    return number if number >= 0 else None


def _list_lines(summary: Any) -> Iterator[str]:
    rows = [
        (str(one.number), iso(one.first_ms), iso(one.last_ms), f"{one.cuts:,}") for one in summary.generations
    ]
    yield from table(("generation", "first moment", "last moment", "cuts"), rows)
    yield _contents(summary)


def _status_lines(summary: Any) -> Iterator[str]:
    newest = summary.newest
    yield f"newest cut    {iso(newest.time_ms)} (number {newest.sequence}, generation {newest.generation})"
    yield f"goes back to  {iso(summary.oldest_ms)}"
    yield f"cluster       {newest.cluster_id}"
    yield _contents(summary)


def _contents(summary: Any) -> str:
    if summary.problem is not None:
        return f"the newest cut cannot be restored: {summary.problem}"
    return f"the newest cut has {summary.topics} topics, {summary.partitions} partitions and {summary.size:,} bytes"


def _server_lines(document: dict[str, Any]) -> Iterator[str]:
    yield f"state         {document['state']}"
    if document["state"] == "off":
        yield "start the broker with --replicate-to URL to have a replica"
        return
    yield f"bucket        {document['url']}"
    if (cut := document["newest_cut"]) is not None:
        yield f"newest cut    {iso(cut['at'])} (number {cut['sequence']}, generation {document['generation']})"
    if (oldest := document["oldest_restorable_at"]) is not None:
        yield f"goes back to  {iso(oldest)}"
    if (lag := document["lag_seconds"]) is not None:
        yield f"lag           {lag:.3f} s"
    if (problem := document["problem"]) is not None:
        yield f"problem       {problem}"


def _verify_lines(verified: Any) -> Iterator[str]:
    header = verified.header
    yield (
        f"cut {header.sequence} of {iso(header.time_ms)}: {verified.objects} objects, {verified.size:,} bytes: "
        f"{'ok' if not verified.damaged else f'{len(verified.damaged)} problems'}"
    )
    for one in verified.damaged[:_PROBLEMS_MAX]:
        yield f"  {one}"
    if (more := len(verified.damaged) - _PROBLEMS_MAX) > 0:
        yield f"  and {more} more; --format json has all"
