"""Print the result of a command as text or JSON, and ask for confirmation."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import click
import msgspec

F = TypeVar("F", bound=Callable[..., Any])


def format_option(command: F) -> F:
    """Add ``--format``, whose choice the command gets as ``form``."""
    return click.option(
        "--format",
        "form",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="Print text for people, or one JSON document for programs.",
    )(command)


def print_result(form: str, document: Any, lines: Iterable[str]) -> None:
    """Print ``document``, of dataclasses, dicts and lists, as JSON, or the ``lines``."""
    if form == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
        return
    for line in lines:
        click.echo(line)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table, its first column aligned to the left."""
    all_rows = [head, *rows]
    widths = [max(len(row[column]) for row in all_rows) for column in range(len(head))]
    return [
        "  ".join(
            [
                f"  {first:<{widths[0]}}",
                *(f"{text:>{width}}" for text, width in zip(rest, widths[1:], strict=True)),
            ]
        )
        for first, *rest in all_rows
    ]


def yes_option(command: F) -> F:
    """Add ``--yes``, which ``confirm`` takes."""
    return click.option("--yes", is_flag=True, help="Do not ask for confirmation.")(command)


def confirm(question: str, *, yes: bool) -> None:
    """Ask ``question`` unless ``yes``; end the command if the answer is no.

    Raises:
        click.UsageError: standard input is no terminal, and ends without an answer.
    """
    if yes:
        return
    try:
        answer = click.confirm(question)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        raise click.UsageError(f"{question} There is nobody to answer; pass --yes") from None
    if not answer:
        raise click.Abort


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
