"""``stele dump`` and ``stele verify``: read the files of a broker offline."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from .server import server_module


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--hex", "show_hex", is_flag=True, help="Also print the bytes of every batch.")
def dump(file: Path, show_hex: bool) -> None:
    """Print the contents of a segment or index FILE.

    The suffix is .log, .index, .timeindex or .keyindex.
    """
    try:
        server_module("storage.inspect").dump(file, show_hex=show_hex, out=sys.stdout)
    except (OSError, ValueError) as error:
        raise click.ClickException(str(error)) from error


@click.command()
@click.argument("data_dir", type=click.Path(exists=True, file_okay=False, path_type=Path))
def verify(data_dir: Path) -> None:
    """Check every batch and index under DATA_DIR.

    Exits with 1 if it finds a problem.
    """

    def report(verified: Any) -> None:
        click.echo(
            f"{verified.directory.name}: {verified.segments} segments, {verified.batches} batches, "
            f"{verified.records} records, {verified.size_bytes} bytes: "
            f"{'ok' if not verified.problems else f'{len(verified.problems)} problems'}"
        )
        for problem in verified.problems:
            click.echo(f"  {problem}")

    try:
        problems = server_module("storage.inspect").verify(data_dir, report=report)
    except (OSError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    if problems:
        click.echo(f"{problems} problems", err=True)
        sys.exit(1)
