"""Options, connections and error reporting for commands that call a broker."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from ..client import Client
from ..config import DEFAULT_HTTP_URL, url_from_environment
from ..errors import SteleClientError

F = TypeVar("F", bound=Callable[..., Any])


def url_option(command: F) -> F:
    """Add ``--url`` for either listener of the client library."""
    return click.option(
        "--url",
        metavar="URL",
        help="URL of the broker: stele://HOST:9009 or http://HOST:8080.  [env var: STELE_URL; "
        "default: stele://127.0.0.1:9009]",
    )(command)


def http_url_option(command: F) -> F:
    """Add ``--url`` for commands that need the HTTP listener; see ``http_url``."""
    return click.option(
        "--url",
        metavar="URL",
        help=f"URL of the broker's HTTP listener.  [env var: STELE_URL; default: {DEFAULT_HTTP_URL}]",
    )(command)


def http_url(url: str | None) -> str:
    """Return the URL from ``--url``, else from STELE_URL, else the default HTTP listener."""
    return url or os.environ.get("STELE_URL") or DEFAULT_HTTP_URL


@contextmanager
def connected(url: str | None) -> Generator[Client]:
    """Open a client; its errors end the command with a message instead of a traceback."""
    try:
        with Client(url_from_environment() if url is None else url) as client:
            yield client
    except SteleClientError as error:
        raise click.ClickException(str(error)) from error
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def parse_configs(pairs: tuple[str, ...]) -> dict[str, str]:
    """Convert ``("retention.ms=1000",)`` to a dict.

    Raises:
        click.BadParameter: an item is not ``NAME=VALUE``.
    """
    configs: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{pair!r} is not NAME=VALUE")
        configs[name] = value
    return configs
