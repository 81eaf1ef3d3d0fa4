"""``stele serve``: run a broker with the settings from the command line."""

from __future__ import annotations

import gc
import sys
from typing import Any

import click

from .server import server_module


@click.command(context_settings={"show_default": False})
@click.option("--data-dir", metavar="DIR", help="Directory of the logs and metadata.  [default: data]")
@click.option("--host", metavar="HOST", help="Address to bind.  [default: 127.0.0.1]")
@click.option(
    "--http-port",
    type=int,
    metavar="PORT",
    help="Port of the HTTP listener; 0 picks a free port.  [default: 8080]",
)
@click.option(
    "--binary-port",
    type=int,
    metavar="PORT",
    help="Port of the binary listener; 0 picks a free port.  [default: 9009]",
)
@click.option(
    "--kafka-port",
    type=int,
    metavar="PORT",
    help="Port of the Kafka listener; 0 picks a free port.  [default: 9092]",
)
@click.option(
    "--registry-port",
    type=int,
    metavar="PORT",
    help="Port of the schema registry; 0 picks a free port.  [default: 8081]",
)
@click.option(
    "--advertised-host",
    metavar="HOST",
    help="Host that clients should connect to.  [default: the bound address]",
)
@click.option(
    "--num-partitions",
    type=int,
    metavar="N",
    help="Partitions of a topic created without a number.  [default: 1]",
)
@click.option(
    "--auto-create-topics-enable/--no-auto-create-topics-enable",
    default=None,
    help="Create a topic on the first write to it.  [default: enabled]",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    help="Lowest level that is logged.  [default: info]",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    help="Plain text, or a JSON object per line.  [default: text]",
)
@click.option(
    "--replicate-to",
    metavar="URL",
    help="Keep a replica of the data directory in a bucket: s3://BUCKET/PREFIX, gs://…, az://… or file:///DIRECTORY.",
)
@click.option(
    "--restore-if-empty",
    is_flag=False,
    flag_value="true",
    metavar="[URL]",
    help="Restore the data directory from a replica if it does not exist or is empty.  [default: off; without URL, "
    "that of --replicate-to]",
)
@click.option("--trace-connections", is_flag=True, default=None, help="Log each Kafka request and response.")
@click.option(
    "--hex", "trace_hex", is_flag=True, default=None, help="Also log their bytes, with --trace-connections."
)
@click.option(
    "--set",
    "others",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set any other setting, such as request_timeout_ms=5000. May be repeated.",
)
def serve(others: tuple[str, ...], **flags: Any) -> None:
    """Run a broker until SIGINT or SIGTERM.

    Every setting can also be set in the environment, as STELE_ and its name in
    capitals (STELE_HTTP_PORT=8082). When the broker is ready it prints one line:

    \b
        stele ready http=HOST:PORT binary=HOST:PORT kafka=HOST:PORT registry=HOST:PORT data=DIR
    """
    # What a start makes stays, and collections would visit it again and again. The broker enables them when it is ready.
    gc.disable()
    overrides = {name: value for name, value in flags.items() if value is not None}
    for pair in others:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{pair!r} is not NAME=VALUE", param_hint="--set")
        setting = name.replace("-", "_")
        if server_module("settings").is_secret(setting):
            raise click.BadParameter(
                f"{setting} may hold a password, which every user of this machine could read; set "
                f"STELE_{setting.upper()} instead",
                param_hint="--set",
            )
        overrides[setting] = value
    sys.exit(server_module("main").serve(overrides))
