"""Import the server's modules, from an installed wheel or from a checkout."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

import click

_PACKAGES = ("stele.server", "app")


def server_module(name: str) -> ModuleType:
    """Import a module of the server.

    It is ``stele.server.NAME``, or ``app.NAME`` in a checkout.

    Raises:
        click.ClickException: this installation has no server.
    """
    for package in _PACKAGES:
        try:
            return import_module(f"{package}.{name}")
        except ModuleNotFoundError as error:
            # Only the package itself may be missing; anything else is a broken installation.
            if error.name != package:
                raise
    raise click.ClickException("this installation has no server; install it with: pip install stele-broker")


@contextmanager
def offline_security() -> Generator[Any]:
    """Yield the server's functions for users, keys and rules of a stopped broker.

    Their errors end the command with a message.
    """
    errors = server_module("errors")
    try:
        yield server_module("security.offline")
    except (errors.SteleError, OSError) as error:
        raise click.ClickException(str(error)) from error
