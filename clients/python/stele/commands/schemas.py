"""``stele schemas``: list, show, register, check and delete schemas, and change what a subject allows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, BinaryIO, TypeVar, cast, get_args

import click
import msgspec

from ..registry.definitions import RegisteredSchema, Schema
from ..schemas.definitions import Reference, SchemaType
from .common import report_options
from .registries import registry_connected, registry_option, schema_in
from .terminal.results import confirm, plural, print_result, table, yes_option

F = TypeVar("F", bound=Callable[..., Any])

_LEVELS = (
    *("NONE", "BACKWARD", "FORWARD", "FULL"),
    *("BACKWARD_TRANSITIVE", "FORWARD_TRANSITIVE", "FULL_TRANSITIVE"),
)


def _broker_options(command: F) -> F:
    return registry_option(report_options(command))


def _schema_options(command: F) -> F:
    """Add FILE with the options that say what it holds, which ``_schema_in`` reads."""
    for option in (
        click.option(
            "--type",
            "kind",
            type=click.Choice(get_args(SchemaType), case_sensitive=False),
            help="Type of the schema.  [default: by the extension of FILE (.avsc, .json, .proto)]",
        ),
        click.option(
            "--reference",
            "references",
            multiple=True,
            metavar="NAME=SUBJECT:VERSION",
            help="A schema that this one uses, and its name in the text. May be repeated.",
        ),
        click.option(
            "--normalize",
            is_flag=True,
            help="Ignore differences without a meaning, such as the order of names.",
        ),
        click.argument("file", type=click.File("rb")),
    ):
        command = option(command)
    return command


def _schema_in(file: BinaryIO, kind: str | None, references: tuple[str, ...]) -> Schema:
    schema = schema_in(file, cast("SchemaType | None", kind and kind.upper()))
    return replace(schema, references=tuple(map(_reference, references)))


def _reference(text: str) -> Reference:
    name, equals, used = text.rpartition("=")
    subject, colon, version = used.rpartition(":")
    if not (equals and colon and name and subject and version.isdigit()):
        raise click.BadParameter(f"{text!r} is not NAME=SUBJECT:VERSION")
    return Reference(name, subject, int(version))


def _version(text: str) -> int | Any:
    if text != "latest" and not text.isdigit():
        raise click.BadParameter(f"{text!r} is not a version: a number, or latest", param_hint="--version")
    return text if text == "latest" else int(text)


@click.group()
def schemas() -> None:
    """List, show, register, check and delete schemas, and configure subjects."""


@schemas.command("list")
@click.argument("prefix", default=":*:")
@click.option("--versions", is_flag=True, help="List all versions, not only the latest of each subject.")
@click.option("--deleted", is_flag=True, help="Also list what is soft-deleted.")
@_broker_options
def list_schemas(
    prefix: str, versions: bool, deleted: bool, form: str, registry: str | None, url: str | None
) -> None:
    """List the subjects whose names begin with PREFIX, and their latest versions."""
    with registry_connected(registry, url) as client:
        listed = client.schemas(prefix, latest_only=not versions, deleted=deleted)
    listed.sort(key=lambda one: (one.subject, one.version or 0))
    rows = [(one.subject, str(one.version), str(one.id), one.schema.type) for one in listed]
    print_result(
        form,
        [
            {"subject": one.subject, "version": one.version, "id": one.id, "type": one.schema.type}
            for one in listed
        ],
        table(("subject", "version", "id", "type"), rows) if rows else (),
    )


@schemas.command()
@click.argument("subject", required=False)
@click.option(
    "--version", default="latest", show_default=True, metavar="N", help="A version of the subject, or latest."
)
@click.option("--id", "schema_id", type=click.IntRange(min=1), metavar="N", help="The schema with this id.")
@click.option("--deleted", is_flag=True, help="Also show a version that is soft-deleted.")
@_broker_options
def show(
    subject: str | None,
    version: str,
    schema_id: int | None,
    deleted: bool,
    form: str,
    registry: str | None,
    url: str | None,
) -> None:
    """Show a version of SUBJECT, or a schema by its id.

    Text is the schema alone, which can be written to a file.
    """
    if (subject is None) == (schema_id is None):
        raise click.UsageError("give SUBJECT or --id")
    with registry_connected(registry, url) as client:
        if subject is not None:
            shown = client.version(subject, _version(version), deleted=deleted)
            print_result(form, _document(shown), _lines(shown.schema))
        else:
            assert schema_id is not None
            schema = client.schema(schema_id)
            print_result(form, {"id": schema_id, "type": schema.type, **schema.as_json()}, _lines(schema))


@schemas.command()
@click.argument("subject")
@_schema_options
@_broker_options
def register(
    subject: str,
    file: BinaryIO,
    kind: str | None,
    references: tuple[str, ...],
    normalize: bool,
    form: str,
    registry: str | None,
    url: str | None,
) -> None:
    """Register the schema in FILE under SUBJECT; - reads standard input.

    \b
    stele schemas register orders-value order.avsc
    """
    schema = _schema_in(file, kind, references)
    with registry_connected(registry, url) as client:
        made = client.register(subject, schema, normalize=normalize)
        if made.version is None:
            made = client.lookup(subject, schema, normalize=normalize)
    print_result(form, _document(made), [f"version {made.version} of {subject} is the schema {made.id}"])


@schemas.command()
@click.argument("subject")
@_schema_options
@click.option(
    "--version",
    metavar="N",
    help="Compare with this version, or with latest.  [default: what registering would compare with]",
)
@_broker_options
@click.pass_context
def check(
    context: click.Context,
    subject: str,
    file: BinaryIO,
    kind: str | None,
    references: tuple[str, ...],
    normalize: bool,
    version: str | None,
    form: str,
    registry: str | None,
    url: str | None,
) -> None:
    """Check whether the schema in FILE is compatible with SUBJECT; exit with 1 if it is not."""
    schema = _schema_in(file, kind, references)
    compared = None if version is None else _version(version)
    with registry_connected(registry, url) as client:
        found = client.check(subject, schema, compared, normalize=normalize)
    text = "is compatible" if found else "is not compatible"
    print_result(
        form,
        {"is_compatible": found.is_compatible, "messages": found.messages},
        [f"the schema {text} with {subject}", *(f"  {message}" for message in found.messages)],
    )
    context.exit(0 if found else 1)


@schemas.command()
@click.argument("subject")
@click.option("--version", metavar="N", help="Delete this version only, or latest.  [default: all]")
@click.option(
    "--permanent",
    is_flag=True,
    help="Delete for good what was deleted before; its records become unreadable.",
)
@yes_option
@_broker_options
def delete(
    subject: str,
    version: str | None,
    permanent: bool,
    yes: bool,
    form: str,
    registry: str | None,
    url: str | None,
) -> None:
    """Delete SUBJECT, or one of its versions.

    Records stay readable, and registering brings a schema back, until it is deleted with --permanent, too.
    """
    what = f"subject {subject}" if version is None else f"version {version} of subject {subject}"
    confirm(f"Delete {what}{' for good' if permanent else ''}?", yes=yes)
    with registry_connected(registry, url) as client:
        if version is None:
            deleted = client.delete_subject(subject, permanent=permanent)
        else:
            deleted = [client.delete_version(subject, _version(version), permanent=permanent)]
    print_result(
        form,
        {"subject": subject, "deleted": deleted, "permanent": permanent},
        [f"deleted {plural(len(deleted), 'version')} of {subject}: {', '.join(map(str, deleted))}"],
    )


@schemas.command()
@click.argument("subject", required=False)
@click.option(
    "--level", type=click.Choice(_LEVELS, case_sensitive=False), help="Set the compatibility level to this."
)
@click.option("--reset", is_flag=True, help="Remove what the subject has of its own.")
@_broker_options
def config(
    subject: str | None, level: str | None, reset: bool, form: str, registry: str | None, url: str | None
) -> None:
    """Show or change the compatibility level of SUBJECT, or the global one."""
    if level is not None and reset:
        raise click.UsageError("give --level or --reset, not both")
    with registry_connected(registry, url) as client:
        if level is not None:
            client.set_config(subject, compatibility=level.upper())
        elif reset:
            client.delete_config(subject)
        shown = client.config_of(subject)
    print_result(form, shown, [f"{name}={_text(value)}" for name, value in sorted(shown.items())])


@schemas.command()
@click.argument("subject", required=False)
@click.option(
    "--set",
    "new",
    type=click.Choice(["READWRITE", "READONLY", "IMPORT"], case_sensitive=False),
    help="Set the mode to this.",
)
@click.option("--force", is_flag=True, help="Set IMPORT even if there are schemas.")
@click.option("--reset", is_flag=True, help="Remove the mode that the subject has of its own.")
@_broker_options
def mode(
    subject: str | None,
    new: str | None,
    force: bool,
    reset: bool,
    form: str,
    registry: str | None,
    url: str | None,
) -> None:
    """Show or change the mode of SUBJECT, or the global one.

    READONLY refuses to register and to delete; IMPORT registers schemas with given ids only.
    """
    if new is not None and reset:
        raise click.UsageError("give --set or --reset, not both")
    with registry_connected(registry, url) as client:
        if new is not None:
            client.set_mode(new.upper(), subject, force=force)
        elif reset:
            client.delete_mode(subject)
        shown = client.mode_of(subject)
    print_result(form, {"mode": shown}, [shown])


def _document(registered: RegisteredSchema) -> dict[str, Any]:
    document = {
        "subject": registered.subject,
        "version": registered.version,
        "id": registered.id,
        "guid": registered.guid,
        "type": registered.schema.type,
        **registered.schema.as_json(),
    }
    document.pop("schemaType", None)
    return document


def _lines(schema: Schema) -> Iterator[str]:
    if schema.type == "PROTOBUF":
        yield schema.text.rstrip("\n")
        return
    try:
        yield msgspec.json.format(schema.text, indent=2)
    except msgspec.DecodeError:
        yield schema.text


def _text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
