"""``stele dump`` and ``stele verify``: read the files of a broker offline."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from .server import server_module
from .terminal.results import format_option, print_result


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--hex", "show_hex", is_flag=True, help="Also print the bytes of every batch.")
@format_option
def dump(file: Path, show_hex: bool, form: str) -> None:
    """Print the contents of a segment or index FILE.

    The suffix is .log, .index, .timeindex, .txnindex or .keyindex. JSON is one object per line, because a
    segment may be large.
    """
    try:
        server_module("storage.inspection.dump_and_verify").dump(
            file, show_hex=show_hex, as_json=form == "json", out=sys.stdout
        )
    except (OSError, ValueError) as error:
        raise click.ClickException(str(error)) from error


@click.command()
@click.argument("data_dir", type=click.Path(exists=True, file_okay=False, path_type=Path))
@format_option
def verify(data_dir: Path, form: str) -> None:
    """Check every batch and index under DATA_DIR.

    Exits with 1 if it finds a problem.
    """
    partitions: list[dict[str, Any]] = []

    def report(verified: Any) -> None:
        if form == "json":
            partitions.append(
                {
                    "partition": verified.directory.name,
                    "segments": verified.segments,
                    "batches": verified.batches,
                    "records": verified.records,
                    "bytes": verified.size_bytes,
                    "problems": verified.problems,
                }
            )
            return
        click.echo(
            f"{verified.directory.name}: {verified.segments} segments, {verified.batches} batches, "
            f"{verified.records} records, {verified.size_bytes} bytes: "
            f"{'ok' if not verified.problems else f'{len(verified.problems)} problems'}"
        )
        for problem in verified.problems:
            click.echo(f"  {problem}")

    try:
        problems = server_module("storage.inspection.dump_and_verify").verify(data_dir, report=report)
    except (OSError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    print_result(form, {"partitions": partitions, "problems": problems}, ())
    if problems:
        click.echo(f"{problems} problems", err=True)
        sys.exit(1)
