"""The console script ``stele``: the list of commands, and error reporting.

Each command lives in ``stele.commands`` and is imported when it is called, so
that ``stele serve`` does not import the client, nor ``stele consume`` the server.

Exit codes: 0 success, 1 failure, 2 wrong usage, 130 interrupted (ctrl-c).
"""

from __future__ import annotations

import errno
import os
import sys
from importlib import import_module
from typing import Any

import click

# name: (module, attribute, help). The help is repeated here so that `stele --help` imports no command.
COMMANDS = {
    "serve": ("serve", "serve", "Run a broker."),
    "top": ("top", "top", "Show live rates, connections, syncs and group lag."),
    "groups": ("groups", "groups", "List, describe, configure, reset and delete groups."),
    "topics": ("topics", "topics", "List, create, describe, alter and delete topics."),
    "schemas": ("schemas", "schemas", "List, register, check and delete schemas."),
    "transactions": ("transactions", "transactions", "List, describe and abort transactions."),
    "quotas": ("quotas", "quotas", "List, set and remove quotas of clients."),
    "produce": ("produce", "produce", "Write records from a file or standard input."),
    "consume": ("consume", "consume", "Print the records of a topic."),
    "table": ("table", "table", "Print the newest record per key of a compacted topic."),
    "sql": ("sql", "sql", "Run a SQL statement over topics."),
    "mirror": ("mirror", "mirror", "Copy topics of another Kafka cluster with their offsets."),
    "iceberg": ("iceberg", "iceberg", "Write topics as Apache Iceberg tables, and show how far they are."),
    "cdc": ("cdc", "cdc", "Stream changes of PostgreSQL tables into topics."),
    "pipeline": ("pipeline", "pipeline", "List and run the bundled Spark pipelines."),
    "user": ("users", "user", "Add, list and delete users, and change passwords."),
    "key": ("users", "key", "Create, list and delete API keys."),
    "acls": ("acls", "acls", "List, add and remove access rules."),
    "restore": ("replica", "restore", "Restore a data directory from a replica in a bucket."),
    "replica": ("replica", "replica", "Show and verify the replica of a broker in a bucket."),
    "dump": ("inspect", "dump", "Print the contents of a segment or index file."),
    "verify": ("inspect", "verify", "Check every batch and index of a data directory."),
}

EXIT_INTERRUPTED = 130
_OUTPUT_ERRORS = frozenset((errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO))


class LazyGroup(click.Group):
    """A command group that imports a command only when it is called."""

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
    """Run and use Stele, a durable log broker.

    One log, served over HTTP, a binary protocol and the Kafka protocol.
    Run `stele COMMAND --help` for the options of a command.
    """


def main(arguments: list[str] | None = None) -> Any:
    """Run the command line (``sys.argv`` by default) and exit with its code."""
    try:
        code = stele.main(arguments, prog_name="stele", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo(err=True)
        code = EXIT_INTERRUPTED
    except OSError as error:
        # Of standard output; commands report errors of files and connections.
        if error.errno not in _OUTPUT_ERRORS or error.filename is not None:
            raise
        # The interpreter flushes it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno != errno.EPIPE:
            click.echo(f"Error: the output cannot be written: {error.strerror}", err=True)
        code = 1
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
