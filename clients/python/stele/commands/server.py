"""Import the server's modules, from an installed wheel or from a checkout."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

import click

_PACKAGES = ("stele.server", "app")


def server_module(name: str) -> ModuleType:
    """Import a module of the server: ``stele.server.NAME``, or ``app.NAME`` in a checkout.

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
