"""``stele quotas``: list, set and remove quotas of clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from ..operations import quotas as operations
from .common import execute, report_options
from .terminal.results import print_result

F = TypeVar("F", bound=Callable[..., Any])

_TYPES = {"user": "user", "client-id": "client id", "ip": "IP address"}
_DEFAULT = "(default)"


def _entity_options(command: F) -> F:
    for kind, what in reversed(_TYPES.items()):
        # ``--user`` is the user of the login.
        name = kind.replace("-", "_")
        command = click.option(
            f"--default-{kind}", is_flag=True, help=f"For every {what} without a quota of its own."
        )(command)
        command = click.option(
            f"--for-{kind}",
            f"for_{name}",
            metavar="ADDRESS" if kind == "ip" else "NAME",
            help=f"For this {what}.",
        )(command)
    return command


def _entity(options: dict[str, Any]) -> dict[str, str | None]:
    entity: dict[str, str | None] = {}
    for kind in _TYPES:
        name = options[f"for_{kind.replace('-', '_')}"]
        is_default = options[f"default_{kind.replace('-', '_')}"]
        if name is not None and is_default:
            raise click.UsageError(f"pass --for-{kind} or --default-{kind}, not both")
        if name is not None or is_default:
            entity[kind] = name
    if not entity:
        raise click.UsageError("name what the quota is for: --for-user, --for-client-id, both, or --for-ip")
    return entity


@click.group()
def quotas() -> None:
    """List, set and remove quotas of clients."""


@quotas.command("list")
@report_options
def list_quotas(form: str, url: str | None) -> None:
    """List all quotas."""
    listed = execute(operations.ListQuotas(), url)
    print_result(form, [_document(quota) for quota in listed], map(_line, listed))


@quotas.command("set")
@click.argument("pairs", metavar="QUOTA=VALUE...", nargs=-1, required=True)
@_entity_options
@report_options
def set_quotas(pairs: tuple[str, ...], form: str, url: str | None, **options: Any) -> None:
    """Set quotas, such as producer_byte_rate=1048576.

    Users and client ids have producer_byte_rate and consumer_byte_rate, in bytes per
    second, and request_percentage, of the time of the event loop. Addresses have
    connection_creation_rate, in connections per second.
    """
    entity = _entity(options)
    values: dict[str, float | None] = {}
    for pair in pairs:
        name, _, text = pair.partition("=")
        try:
            values[name] = float(text)
        except ValueError:
            raise click.BadParameter(f"{pair!r} is not QUOTA=VALUE with a number") from None
    quota = execute(operations.ChangeQuotas(entity=entity, values=values), url)
    print_result(form, _document(quota), [_line(quota)])


@quotas.command()
@click.argument("names", metavar="[QUOTA]...", nargs=-1)
@_entity_options
@report_options
def remove(names: tuple[str, ...], form: str, url: str | None, **options: Any) -> None:
    """Remove the named quotas, or all of the user, client id or address."""
    entity = _entity(options)
    if not names:
        listed = execute(operations.ListQuotas(), url)
        names = tuple(name for other, values in listed if other == entity for name in values)
    quota = execute(operations.ChangeQuotas(entity=entity, values=dict.fromkeys(names)), url)
    print_result(form, _document(quota), [_line(quota)])


def _document(quota: operations.Quota) -> dict[str, Any]:
    entity, values = quota
    return {"entity": entity, "quotas": values}


def _line(quota: operations.Quota) -> str:
    entity, values = quota
    whom = ", ".join(f"{kind} {_DEFAULT if name is None else name}" for kind, name in sorted(entity.items()))
    shown = "  ".join(
        f"{name}={value:g}" if value < 1e6 else f"{name}={value:.0f}" for name, value in values.items()
    )
    return f"{whom}: {shown or 'no quotas'}"
