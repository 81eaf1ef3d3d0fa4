"""``stele pipeline``: Spark jobs that can be run as they are."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import click

_HERE = Path(__file__).resolve()
# In a wheel, and in a checkout.
_FOLDERS = (_HERE.parents[1] / "pipelines", _HERE.parents[4] / "pipelines")


def _pipelines() -> dict[str, Path]:
    folder = next((folder for folder in _FOLDERS if folder.is_dir()), None)
    if folder is None:
        raise click.ClickException(
            "this installation has no pipelines; install it with: pip install stele-broker"
        )
    return {path.stem: path for path in sorted(folder.glob("*.py")) if "def main(" in path.read_text()}


@click.group()
def pipeline() -> None:
    """Run Spark pipelines on the flights of the demo; needs the extras spark and pipelines."""


@pipeline.command("list")
def list_pipelines() -> None:
    """Names, what they do, and where their files are."""
    for name, path in _pipelines().items():
        about = (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n\n")[0]
        click.echo(f"{name:<12} {' '.join(about.split())}\n{'':<12} {path}")


@pipeline.command(
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
)
@click.argument("name")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(name: str, arguments: tuple[str, ...]) -> None:
    """Run pipeline NAME; `stele pipeline run NAME --help` shows its options."""
    found = _pipelines()
    if name in ("--help", "-h"):
        click.echo(click.get_current_context().get_help())
        return
    if name not in found:
        raise click.UsageError(f"there is no pipeline {name!r}; there are {', '.join(found)}")
    command = [sys.executable, str(found[name]), *arguments]
    if os.name == "posix":
        # The pipeline gets the signals of this process, for it is this process.
        os.execv(sys.executable, command)  # noqa: S606 - a file of this installation
    sys.exit(subprocess.run(command, check=False).returncode)  # noqa: S603
