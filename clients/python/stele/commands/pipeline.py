"""``stele pipeline``: list and run the bundled Spark jobs."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import click

from .terminal.results import format_option, print_result

_HERE = Path(__file__).resolve()
# The first in a wheel, the second in a checkout.
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
    """List and run Spark pipelines on the flights of the demo.

    Needs Java 17 or 21, and: pip install 'stele-broker[spark,pipelines]'
    """


@pipeline.command("list")
@format_option
def list_pipelines(form: str) -> None:
    """List the pipelines with a description and the path of each."""
    listed: list[dict[str, str]] = []
    for name, path in _pipelines().items():
        about = (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n\n")[0]
        listed.append({"name": name, "about": " ".join(about.split()), "path": str(path)})
    print_result(form, listed, (f"{p['name']:<12} {p['about']}\n{'':<12} {p['path']}" for p in listed))


@pipeline.command(
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
)
@click.argument("name")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(name: str, arguments: tuple[str, ...]) -> None:
    """Run pipeline NAME.

    `stele pipeline run NAME --help` shows its options.
    """
    pipelines = _pipelines()
    if name in ("--help", "-h"):
        click.echo(click.get_current_context().get_help())
        return
    if name not in pipelines:
        raise click.UsageError(f"pipeline {name!r} does not exist; choose one of {', '.join(pipelines)}")
    command = [sys.executable, str(pipelines[name]), *arguments]
    if os.name == "posix":
        # Replaces this process, so that the pipeline receives its signals.
        os.execv(sys.executable, command)  # noqa: S606 - a file of this installation
    sys.exit(subprocess.run(command, check=False).returncode)  # noqa: S603
