"""``stele acls``: access rules of a broker.

It is a running one, or one that does not run with ``--data-dir``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from ..operations import acls as operations
from ..operations.acls import AclDocument
from .common import execute, url_option
from .terminal.results import format_option, print_result

F = TypeVar("F", bound=Callable[..., Any])

_OPERATIONS = (
    *("ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION"),
    *("DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "CREATE_TOKENS", "DESCRIBE_TOKENS"),
)
# Kafka's type of resource for each option.
_RESOURCES = {
    "topic": "TOPIC",
    "group": "GROUP",
    "transactional_id": "TRANSACTIONAL_ID",
    "user_principal": "USER",
    "subject": "SUBJECT",
}


def _where(command: F) -> F:
    """Add the options that choose the broker, or its data directory."""
    data_dir = click.option(
        "--data-dir",
        type=click.Path(file_okay=False, path_type=Path),
        metavar="DIR",
        help="Data directory of a stopped broker, instead of a URL.",
    )
    return url_option(data_dir(command))


def _resource(command: F) -> F:
    """Add the options that name resources."""
    for option in (
        click.option("--topic", metavar="NAME", help="A topic; * stands for all."),
        click.option("--group", metavar="NAME", help="A group; * stands for all."),
        click.option("--transactional-id", metavar="NAME", help="A transactional id; * stands for all."),
        click.option("--user-principal", metavar="User:NAME", help="A user, for its API keys."),
        click.option("--subject", metavar="NAME", help="A subject of the schema registry; * stands for all."),
        click.option("--cluster", is_flag=True, help="The cluster."),
        click.option("--prefixed", is_flag=True, help="All names that begin with NAME."),
    ):
        command = option(command)
    return command


def _operation(text: str) -> Callable[[F], F]:
    """Add ``--operation``, whose values the command gets as ``names``."""
    operation = click.Choice(_OPERATIONS, case_sensitive=False)
    return click.option(
        "--operation", "names", type=operation, multiple=True, help=f"{text} May be repeated."
    )


def _resources(options: dict[str, Any]) -> list[dict[str, str]]:
    """Return the resources that the options name."""
    pattern = "PREFIXED" if options["prefixed"] else "LITERAL"
    named = [
        {"resource_type": kind, "resource_name": options[name], "pattern_type": pattern}
        for name, kind in _RESOURCES.items()
        if options[name] is not None
    ]
    cluster = {"resource_type": "CLUSTER", "resource_name": "kafka-cluster", "pattern_type": "LITERAL"}
    return [*named, cluster] if options["cluster"] else named


_only_principal = click.option("--principal", metavar="User:NAME", help="Only rules of this principal.")


@click.group()
def acls() -> None:
    """List, add and remove access rules."""


@acls.command("list")
@_only_principal
@_resource
@format_option
@_where
def list_acls(
    principal: str | None, form: str, url: str | None, data_dir: Path | None, **options: Any
) -> None:
    """List access rules; with a resource, all that cover it."""
    resources = _resources(options)
    found: list[AclDocument] = []
    for selection in resources or [{}]:
        if resources:
            selection = {**selection, "pattern_type": "PREFIXED" if options["prefixed"] else "MATCH"}
        if principal is not None:
            selection = {**selection, "principal": principal}
        found += execute(operations.ListAcls(selection=selection), url, "acls", data_dir)
    _show(form, found)


@acls.command("add")
@click.option(
    "--principal",
    metavar="User:NAME",
    help="Principal that the rule applies to; User:* matches every principal.",
)
@click.option("--admin", metavar="User:NAME", help="Allow this principal everything.")
@_operation("What is allowed.")
@click.option("--host", default="*", metavar="ADDRESS", help="Only from this IP address.")
@click.option("--deny", is_flag=True, help="Deny instead of allow; a denial beats every permission.")
@_resource
@format_option
@_where
def add_acls(
    principal: str | None,
    admin: str | None,
    names: Sequence[str],
    host: str,
    deny: bool,
    form: str,
    url: str | None,
    data_dir: Path | None,
    **options: Any,
) -> None:
    """Add access rules: each operation on each resource.

    They take effect at once. For example:

    \b
        stele acls add --principal User:alice --operation READ --topic orders --group billing
        stele acls add --admin User:root --data-dir /srv/stele
    """
    resources = _resources(options)
    rules = [
        {
            **resource,
            "principal": principal or "",
            "host": host,
            "operation": name,
            "permission": "DENY" if deny else "ALLOW",
        }
        for resource in resources
        for name in names
    ]
    if admin is not None:
        if rules or principal or names or resources or deny or host != "*":
            raise click.UsageError("--admin stands alone: it allows everything on everything")
        everything = [
            {"resource_type": kind, "resource_name": "*"} for kind in _RESOURCES.values() if kind != "USER"
        ]
        rules = [
            {**resource, "principal": admin, "operation": "ALL"}
            for resource in ({"resource_type": "CLUSTER", "resource_name": "kafka-cluster"}, *everything)
        ]
    elif not principal or not rules:
        raise click.UsageError(
            "give --principal, --operation, and one or more of --topic, --group, --cluster …"
        )
    _show(form, execute(operations.AddAcls(acls=rules), url, "add_acls", data_dir))


@acls.command("remove")
@_only_principal
@_operation("Only rules of this operation.")
@click.option("--deny", is_flag=True, help="Only denials.")
@_resource
@format_option
@_where
def remove_acls(
    principal: str | None,
    names: Sequence[str],
    deny: bool,
    form: str,
    url: str | None,
    data_dir: Path | None,
    **options: Any,
) -> None:
    """Remove the access rules of a principal, or those on a resource, and print them."""
    selection: dict[str, str] = {"permission": "DENY"} if deny else {}
    if principal is not None:
        selection["principal"] = principal
    resources = _resources(options)
    if not resources and principal is None:
        raise click.UsageError("give --principal, or one or more of --topic, --group, --cluster …")
    removed: list[AclDocument] = []
    for resource in resources or [{}]:
        for operation in [{"operation": name} for name in names] or [{}]:
            chosen = {**selection, **resource, **operation}
            removed += execute(operations.RemoveAcls(selection=chosen), url, "remove_acls", data_dir)
    _show(form, removed)


def _show(form: str, found: Sequence[AclDocument]) -> None:
    print_result(form, found, map(_line, found))


def _line(acl: AclDocument) -> str:
    name = acl["resource_name"] + ("…" if acl["pattern_type"] == "PREFIXED" else "")
    return (
        f"{acl['permission']:<5}  {acl['principal']}  {acl['operation']}  {acl['resource_type']} {name}  "
        f"from {acl['host']}"
    )
