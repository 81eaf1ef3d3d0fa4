"""Options, connections and error reporting for commands that call a broker."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from ..calls import make_config
from ..client import Client
from ..config import DEFAULT_HTTP_URL, ClientConfig, has_password, url_from_environment
from ..errors import SteleClientError

F = TypeVar("F", bound=Callable[..., Any])


_USER, _PASSWORD_FILE = "stele.user", "stele.password_file"


def login_options(command: F) -> F:
    """Add ``--user`` and ``--password-file``, which ``config_of`` reads.

    A password is never an argument.
    """
    return user_option(
        click.option(
            "--password-file",
            type=click.Path(dir_okay=False),
            metavar="FILE",
            expose_value=False,
            callback=_remember(_PASSWORD_FILE),
            help="Read the password from the first line of FILE, which only its owner may read.  "
            "[env var: STELE_PASSWORD_FILE, STELE_PASSWORD]",
        )(command)
    )


def user_option(command: F) -> F:
    """Add ``--user``, which ``config_of`` reads."""
    return click.option(
        "--user",
        metavar="USER",
        expose_value=False,
        callback=_remember(_USER),
        help="Log in as USER.  [env var: STELE_USER; with an API key: STELE_API_KEY, STELE_API_KEY_FILE]",
    )(command)


def _remember(key: str) -> Callable[[click.Context, click.Parameter, str | None], None]:
    def callback(context: click.Context, _parameter: click.Parameter, value: str | None) -> None:
        context.meta[key] = value

    return callback


def config_of(url: str) -> ClientConfig:
    """Return a client's configuration with the login of options and environment.

    Raises:
        click.UsageError: they contradict each other, or a file with a secret cannot be used.
    """
    meta = click.get_current_context().meta
    try:
        config = make_config(url, user=meta.get(_USER), password_file=meta.get(_PASSWORD_FILE))
        # A password that is missing is reported here, too.
        assert config.endpoint
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    return config


def refuse_password(url: str | None) -> None:
    """Refuse a password in an argument, where every user of the machine can read it."""
    if url is not None and has_password(url):
        raise click.UsageError(
            "the URL holds a password, which every user of this machine could read; "
            "write USER@HOST, and set STELE_PASSWORD_FILE or STELE_PASSWORD"
        )


def url_option(command: F) -> F:
    """Add ``--url`` for either listener, and the options of a login."""
    command = login_options(command)
    return click.option(
        "--url",
        metavar="URL",
        help="URL of the broker: stele://HOST:9009 or http://HOST:8080; with TLS, "
        "stele+tls://HOST:9009?ca_file=FILE or https://.  [env var: STELE_URL, STELE_CA_FILE; "
        "default: stele://127.0.0.1:9009]",
    )(command)


def http_url_option(command: F) -> F:
    """Add ``--url`` for the HTTP listener, and the options of a login.

    See ``http_url``.
    """
    command = login_options(command)
    return click.option(
        "--url",
        metavar="URL",
        help=f"URL of the broker's HTTP listener.  [env var: STELE_URL; default: {DEFAULT_HTTP_URL}]",
    )(command)


def http_url(url: str | None) -> str:
    """Return the URL from ``--url``, otherwise from STELE_URL, or the default.

    The default is the HTTP listener of this machine.
    """
    refuse_password(url)
    return url or os.environ.get("STELE_URL") or DEFAULT_HTTP_URL


@contextmanager
def connected(url: str | None) -> Generator[Client]:
    """Open a client; its errors end the command with a message instead of a traceback."""
    try:
        with Client(config=config_of(_checked_url(url))) as client:
            yield client
    except SteleClientError as error:
        raise click.ClickException(str(error)) from error
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _checked_url(url: str | None) -> str:
    if url is None:
        return url_from_environment()
    # ``http_url`` may have read it from the environment.
    if url != os.environ.get("STELE_URL"):
        refuse_password(url)
    return url


def parse_configs(pairs: tuple[str, ...]) -> dict[str, str]:
    """Convert ``("retention.ms=1000",)`` to a dict.

    Raises:
        click.BadParameter: an item is not ``NAME=VALUE``, or a name is given twice.
    """
    configs: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{pair!r} is not NAME=VALUE")
        if name in configs:
            raise click.BadParameter(f"{name} is given twice; give it once")
        configs[name] = value
    return configs
