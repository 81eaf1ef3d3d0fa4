"""``stele dump`` and ``stele verify``: look at files, without a broker."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from .server import server_module


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--hex", "show_hex", is_flag=True, help="Show the bytes of every batch, too.")
def dump(file: Path, show_hex: bool) -> None:
    """Show what is in a segment FILE (.log, .index, .timeindex), batch by batch."""
    try:
        server_module("storage.inspect").dump(file, show_hex=show_hex, out=sys.stdout)
    except (OSError, ValueError) as error:
        raise click.ClickException(str(error)) from error


@click.command()
@click.argument("data_dir", type=click.Path(exists=True, file_okay=False, path_type=Path))
def verify(data_dir: Path) -> None:
    """Check every batch and index under DATA_DIR; ends with 1 if something is wrong."""
    try:
        code = server_module("storage.inspect").verify(data_dir, report=click.echo)
    except (OSError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    sys.exit(code)
