"""The console script ``stele``: names of commands, and how errors reach the user.

Each command lives in ``stele.commands`` and is imported when it is called, so
that ``stele serve`` does not pay for a client and ``stele consume`` not for a server.

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import click

# name: (module, attribute, help). The help stands here so that `stele --help` imports nothing.
COMMANDS = {
    "serve": ("serve", "serve", "Run a broker."),
    "top": ("top", "top", "Show rates, listeners, syncs and lag, live."),
    "groups": ("groups", "groups", "List and describe consumer groups, reset their offsets."),
    "topics": ("topics", "topics", "List, create, describe, alter and delete topics."),
    "produce": ("produce", "produce", "Store records from a file or standard input."),
    "consume": ("consume", "consume", "Print records, and follow a topic."),
    "cdc": ("cdc", "cdc", "Follow tables of PostgreSQL into topics."),
    "pipeline": ("pipeline", "pipeline", "Run Spark pipelines."),
    "dump": ("inspect", "dump", "Show what is in a segment file."),
    "verify": ("inspect", "verify", "Check every batch of a data directory."),
}

EXIT_INTERRUPTED = 130


class LazyGroup(click.Group):
    """Knows the names of its commands, and imports one when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[cmd_name]
        command = getattr(import_module(f"stele.commands.{module}"), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="stele-broker", prog_name="stele")
def stele() -> None:
    """A durable log broker: one log, over HTTP and a small binary protocol."""


def main(arguments: list[str] | None = None) -> Any:
    try:
        code = stele.main(arguments, prog_name="stele", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo(err=True)
        code = EXIT_INTERRUPTED
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
