"""``stele mirror``: copy topics of another cluster, with the same offsets."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
import threading
from contextlib import suppress

import click
from click.core import ParameterSource

from ..config import url_from_environment
from .common import refuse_password
from .supervised import end_with_parent

# Seconds between updates for a supervisor, and between lines of a log.
_UPDATE_S = 0.5
_LOG_S = 10.0


@click.group()
def mirror() -> None:
    """Copy topics of another cluster, with the same offsets."""


@mirror.command()
@click.option("--definition", envvar="STELE_MIRROR_DEFINITION", show_envvar=True, required=True, metavar="JSON",
              help="What to copy, from where: name, from, topics, groups, acls, source, rate.")  # fmt: skip
@click.option("--broker", envvar=["STELE_MIRROR_BROKER", "STELE_URL"], show_envvar=True, metavar="URL",
              help="The broker to copy to: stele://HOST:9009; the login as for other commands.")  # fmt: skip
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info",
              show_default=True, help="Lowest level that is logged.")  # fmt: skip
@click.option("--supervised", is_flag=True, hidden=True)
@click.option("--silence", envvar="STELE_MIRROR_SILENCE", type=float, default=None, hidden=True)
def run(definition: str, broker: str | None, log_level: str, supervised: bool, silence: float | None) -> None:
    """Copy until interrupted, without a broker that supervises it.

    SIGINT and SIGTERM end it at once; the next run goes on where this one ended.
    """
    if click.get_current_context().get_parameter_source("broker") is ParameterSource.COMMANDLINE:
        refuse_password(broker)
    logging.basicConfig(
        level=log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )
    # httpx logs every request at level info.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    import uvloop

    code = uvloop.run(_run(definition, broker, is_supervised=supervised, silence_s=silence))
    if code:
        sys.exit(code)


async def _run(definition: str, broker: str | None, *, is_supervised: bool, silence_s: float | None) -> int:
    from ..mirror.definition import Definition
    from ..mirror.errors import MirrorError
    from ..mirror.run import Mirror

    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    if is_supervised:
        stop = lambda: loop.call_soon_threadsafe(stopping.set)  # noqa: E731
        threading.Thread(target=end_with_parent, args=(stop, silence_s), daemon=True).start()
    name = ""
    try:
        parsed = Definition.parse(definition)
        name = parsed.name
        made = Mirror(parsed, broker or url_from_environment())
    except (MirrorError, ValueError) as error:
        if not is_supervised:
            raise click.ClickException(str(error)) from error
        # A crash loop would tell less: the state says what to change, until the broker ends this process.
        click.echo(json.dumps({"name": name, "state": "failed", "last_error": str(error)}))
        await stopping.wait()
        return 1
    work = asyncio.create_task(made.run())
    waiting = asyncio.create_task(stopping.wait())
    shown = ""
    try:
        while not stopping.is_set() and not work.done():
            await asyncio.wait(
                (work, waiting), timeout=_UPDATE_S if is_supervised else _LOG_S, return_when="FIRST_COMPLETED"
            )
            document = made.document()
            if is_supervised:
                with suppress(BrokenPipeError):
                    # The supervisor has gone; the end of standard input stops the mirror.
                    click.echo(json.dumps(document))
            elif (line := f"{document['state']}: lag {document['lag']:,} {document['last_error']}") != shown:
                shown = line
                logging.getLogger("stele.mirror").info("%s", line)
    finally:
        for task in (work, waiting):
            task.cancel()
        await asyncio.gather(work, waiting, return_exceptions=True)
    return 0 if stopping.is_set() else 1
