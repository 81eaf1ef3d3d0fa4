"""Options, connections and error reporting for commands that call a broker."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from ..calls import make_config
from ..client import Client
from ..config import (
    ClientConfig,
    Endpoint,
    broker_urls,
    has_password,
    joined_urls,
    shown_url,
    url_from_environment,
)
from ..errors import BrokerUnavailableError, SteleClientError, UnsupportedOperationError
from ..operations.base import Operation
from ..operations.topics import HttpListener, http_listener_url
from .server import offline_security
from .terminal.results import format_option

F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R")


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
    """Add ``--url``, of either listener for every command, and the options of a login."""
    command = login_options(command)
    return click.option(
        "--url",
        metavar="URL",
        help="URL of the broker: stele://HOST:9009 or http://HOST:8080; with TLS, "
        "stele+tls://HOST:9009?ca_file=FILE or https://.  [env var: STELE_URL, STELE_CA_FILE; "
        "default: stele://127.0.0.1:9009]",
    )(command)


def report_options(command: F) -> F:
    """Add ``--format``, and ``--url`` with the options of a login."""
    return format_option(url_option(command))


def http_url(url: str | None) -> str:
    """Return the URL of the HTTP listener, for commands that need it.

    ``url`` is that of ``--url``, None for that of the environment. For a URL of the
    binary protocol, the HTTP listener of each of its brokers is looked up; those that
    cannot be reached are left out. The HTTP listener is on the host of the URL.

    Raises:
        click.ClickException: no broker can be reached, or tells a listener that may be used.
        click.UsageError: the URL or the login is not valid.
    """
    given = _checked_url(url)
    if _endpoint_of(given).transport == "http":
        return given
    return _url_of_listeners(given)


def _url_of_listeners(given: str) -> str:
    """Ask each broker of a URL for its HTTP listener, and return the URL of those that answer."""
    found: list[str] = []
    failure: SteleClientError | None = None
    for one in broker_urls(given):
        try:
            with Client(config=config_of(one)) as client:
                listener = client.call(HttpListener())
        except BrokerUnavailableError as error:
            failure = error
        except UnsupportedOperationError as error:
            raise click.ClickException(f"{shown_url(one)}: {error}, or {_GIVE}") from error
        except SteleClientError as error:
            raise click.ClickException(str(error)) from error
        else:
            try:
                found.append(http_listener_url(one, listener))
            except UnsupportedOperationError as error:
                raise click.ClickException(f"{error}; this command needs one: {_GIVE}") from error
    if not found:
        raise click.ClickException(str(failure)) from failure
    return joined_urls(found)


_GIVE = "give the URL of the HTTP listener with --url http://HOST:8080"


def _endpoint_of(url: str) -> Endpoint:
    try:
        return config_of(url).endpoint
    except ValueError as error:
        raise click.UsageError(str(error)) from error


@contextmanager
def connected(url: str | None) -> Generator[Client]:
    """Open a client; its errors end the command with a message instead of a traceback."""
    with _opened(_checked_url(url)) as client:
        yield client


@contextmanager
def http_connected(url: str | None) -> Generator[Client]:
    """Open a client of the HTTP listener, as ``connected`` does."""
    with _opened(http_url(url)) as client:
        yield client


def execute(operation: Operation[R], url: str | None, function: str = "", data_dir: Path | None = None) -> R:
    """Execute an operation over HTTP, or on the data directory of a broker that does not run.

    There it is a ``function`` of the server, whose further arguments are the fields of the operation.
    """
    if data_dir is None:
        with http_connected(url) as client:
            return client.call(operation)
    with offline_security() as functions:
        return getattr(functions, function)(data_dir, *operation.fields().values())


@contextmanager
def _opened(url: str) -> Generator[Client]:
    try:
        with Client(config=config_of(url)) as client:
            yield client
    except SteleClientError as error:
        raise click.ClickException(str(error)) from error
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _checked_url(url: str | None) -> str:
    if url is None:
        try:
            return url_from_environment()
        except ValueError as error:
            raise click.UsageError(str(error)) from error
    refuse_password(url)
    return url


def config_option(text: str) -> Callable[[F], F]:
    """Add ``--config``, whose pairs the command gets as the dict ``configs``."""
    return click.option(
        "--config",
        "configs",
        multiple=True,
        metavar="NAME=VALUE",
        callback=_parse_configs,
        help=f"{text} May be repeated.",
    )


def reset_option(command: F) -> F:
    """Add ``--reset``, whose names the command gets as ``resets``."""
    text = "Reset a configuration to its default. May be repeated."
    return click.option("--reset", "resets", multiple=True, metavar="NAME", help=text)(command)


def _parse_configs(
    _context: click.Context, _parameter: click.Parameter, pairs: tuple[str, ...]
) -> dict[str, str | None]:
    configs: dict[str, str | None] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{pair!r} is not NAME=VALUE")
        if name in configs:
            raise click.BadParameter(f"{name} is given twice; give it once")
        configs[name] = value
    return configs
