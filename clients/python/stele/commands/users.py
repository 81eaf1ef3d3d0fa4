"""``stele user`` and ``stele key``.

Users and API keys of a running broker, or of a data directory without one.

With a URL they call the HTTP API; otherwise they open the data directory. A password never comes from the command line, where every user of the machine can read it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from ..operations import users as operations
from ..operations.base import Operation
from .common import execute, refuse_password, user_option
from .terminal.results import format_option, print_result

F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R")

_PASSWORD_VARIABLE = "STELE_PASSWORD"  # noqa: S105 (the name of it)
_NEW_PASSWORD_VARIABLE = "STELE_NEW_PASSWORD"  # noqa: S105
_DAY_MS = 86_400_000

_data_dir = click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("data"),
    envvar="STELE_DATA_DIR",
    metavar="DIR",
    # Known before --url, which the environment may give unless it names the data directory.
    is_eager=True,
    help="Data directory of a stopped broker; not with --url.  [env var: STELE_DATA_DIR; default: data]",
)
_password_file = click.option(
    "--password-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Read the password of the user NAME from the first line of FILE, which only its owner may read.",
)


def _store_options(command: F) -> F:
    """Add the options that say whose users: ``--url`` or ``--data-dir``."""
    url = click.option(
        "--url",
        metavar="URL",
        callback=_url_of,
        help="Change the users of this broker, such as stele+tls://admin@HOST:9009 or https://admin@HOST:8080; log in "
        "with STELE_PASSWORD_FILE, STELE_PASSWORD or STELE_API_KEY.  [env var: STELE_URL, unless a data directory is given]",
    )
    return format_option(url(user_option(_data_dir(command))))


def _url_of(context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None:
        refuse_password(value)
        return value
    is_offline = context.get_parameter_source("data_dir") is not ParameterSource.DEFAULT
    return None if is_offline else os.environ.get("STELE_URL") or None


@click.group()
def user() -> None:
    """Add, list and delete users, and change passwords."""


@user.command("add")
@click.argument("name")
@_password_file
@_store_options
def add_user(name: str, password_file: Path | None, form: str, data_dir: Path, url: str | None) -> None:
    """Create the user NAME.

    The password comes from --password-file, otherwise from the variable STELE_PASSWORD
    (with --url from STELE_NEW_PASSWORD, because STELE_PASSWORD is the password of the login), otherwise from a prompt, or from standard input if that is not a terminal.
    """
    password = _password(password_file, is_online=url is not None)
    _execute(operations.AddUser(name=name, password=password), "add_user", url, data_dir)
    print_result(form, {"added": name}, [f"added user {name}"])


@user.command("passwd")
@click.argument("name")
@_password_file
@_store_options
def set_password(name: str, password_file: Path | None, form: str, data_dir: Path, url: str | None) -> None:
    """Replace the password of the user NAME.

    It comes from the same places as for `add`.
    """
    password = _password(password_file, is_online=url is not None)
    _execute(operations.SetPassword(name=name, password=password), "set_password", url, data_dir)
    print_result(form, {"changed": name}, [f"changed the password of user {name}"])


@user.command("list")
@_store_options
def list_users(form: str, data_dir: Path, url: str | None) -> None:
    """List all users with their SCRAM mechanisms."""
    users = _execute(operations.ListUsers(), "users", url, data_dir)
    print_result(
        form,
        [{"name": name, "mechanisms": mechanisms} for name, mechanisms in users.items()],
        [f"{name}  {', '.join(mechanisms)}" for name, mechanisms in users.items()],
    )


@user.command("delete")
@click.argument("name")
@_store_options
def delete_user(name: str, form: str, data_dir: Path, url: str | None) -> None:
    """Delete the user NAME and its API keys."""
    _execute(operations.DeleteUser(name=name), "delete_user", url, data_dir)
    print_result(form, {"deleted": name}, [f"deleted user {name}"])


@click.group()
def key() -> None:
    """Create, list and delete API keys."""


@key.command("create")
@click.argument("user_name", metavar="USER")
@click.option("--description", default="", metavar="TEXT", help="What the key is for.")
@click.option(
    "--expires-days", type=click.IntRange(min=1, max=36_500), metavar="N", help="Days until it expires."
)
@_store_options
def create_key(
    user_name: str, description: str, expires_days: int | None, form: str, data_dir: Path, url: str | None
) -> None:
    """Create an API key that acts as USER, and print it. It cannot be shown again."""
    lifetime_ms = None if expires_days is None else expires_days * _DAY_MS
    create = operations.CreateKey(user=user_name, description=description, lifetime_ms=lifetime_ms)
    created = _execute(create, "create_key", url, data_dir)
    print_result(form, {"key": created}, [created])


@key.command("list")
@_store_options
def list_keys(form: str, data_dir: Path, url: str | None) -> None:
    """List the ids, users and expiries of all API keys."""
    keys = _execute(operations.ListKeys(), "api_keys", url, data_dir)
    print_result(
        form,
        [
            {
                "id": key.key_id,
                "principal": key.principal,
                "description": key.description,
                "expires_at": key.expires_at_ms,
            }
            for key in keys
        ],
        [f"{key.key_id}  {key.principal}  {_expiry(key.expires_at_ms)}  {key.description}" for key in keys],
    )


@key.command("delete")
@click.argument("key_id", metavar="ID")
@_store_options
def delete_key(key_id: str, form: str, data_dir: Path, url: str | None) -> None:
    """Delete the API key with this ID."""
    _execute(operations.DeleteKey(key_id=key_id), "delete_key", url, data_dir)
    print_result(form, {"deleted": key_id}, [f"deleted API key {key_id}"])


def _execute(operation: Operation[R], function: str, url: str | None, data_dir: Path) -> R:
    if url is None:
        return execute(operation, None, function, data_dir)
    # The environment's may have a password.
    return execute(operation, None if url == os.environ.get("STELE_URL") else url)


def _password(file: Path | None, *, is_online: bool) -> str:
    if file is not None:
        if file.stat().st_mode & 0o077:
            raise click.ClickException(f"{file} can be read by others; run: chmod 600 {file}")
        return _first_line(file.read_text())
    from_environment = os.environ.get(_NEW_PASSWORD_VARIABLE if is_online else _PASSWORD_VARIABLE)
    if from_environment:
        return from_environment
    if sys.stdin.isatty():
        return str(click.prompt("Password", hide_input=True, confirmation_prompt=True))
    return _first_line(sys.stdin.read())


def _first_line(text: str) -> str:
    return text.partition("\n")[0].removesuffix("\r")


def _expiry(at_ms: int | None) -> str:
    if at_ms is None:
        return "never expires"
    return f"expires {datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d}"
