"""What commands that talk to a broker share."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from ..client import Client
from ..config import url_from_environment
from ..errors import SteleClientError

F = TypeVar("F", bound=Callable[..., Any])


def url_option(command: F) -> F:
    return click.option(
        "--url",
        metavar="URL",
        help="The broker: stele://HOST:9009 or http://HOST:8080. [env: STELE_URL, STELE_CLIENT_…; "
        "default: stele://127.0.0.1:9009]",
    )(command)


@contextmanager
def connected(url: str | None) -> Generator[Client]:
    """A client whose errors end the command with their message instead of a traceback."""
    try:
        with Client(url_from_environment() if url is None else url) as client:
            yield client
    except SteleClientError as error:
        raise click.ClickException(str(error)) from error
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def parse_configs(pairs: tuple[str, ...]) -> dict[str, str]:
    """``("retention.ms=1000",)`` as a dict.

    Raises:
        click.BadParameter: one without a ``=``.
    """
    configs: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{pair!r} is not NAME=VALUE")
        configs[name] = value
    return configs
