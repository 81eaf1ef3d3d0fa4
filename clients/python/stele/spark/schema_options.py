"""Parser for the options of columns with a schema. No Spark, no I/O."""

from __future__ import annotations

from ..config import Endpoint, has_password
from ..schemas.subjects import subject_name
from .given import SCHEMA_NAMES, Given
from .options import (
    Assign,
    ColumnSchema,
    Connection,
    OptionError,
    RegistryOptions,
    SchemaOptions,
    Selection,
    Subscribe,
)


def decoding_of(given: Given, connection: Connection, selection: Selection) -> SchemaOptions | None:
    """Return what decodes columns of a read; None without it. Raises OptionError."""
    match selection:
        case Subscribe():
            topics = set(selection.topics)
        case Assign():
            topics = {topic for topic, _ in selection.partitions}
        case _:
            topics = set[str]()
    topic = topics.pop() if len(topics) == 1 else None
    columns = _column_schemas(given, "stele.decode", topic, "several topics are read")
    nulls = given.choice("stele.decode.errors", ("fail", "null")) == "null"
    return _schema_options(given, connection, columns, nulls=nulls) if columns else None


def encoding_of(given: Given, connection: Connection) -> SchemaOptions | None:
    """Return what encodes columns of a write; None without it. Raises OptionError."""
    columns = _column_schemas(given, "stele.encode", given.text("topic"), "the topics are in a column")
    registers = given.boolean("stele.encode.register", default=False)
    return _schema_options(given, connection, columns, registers=registers) if columns else None


def _column_schemas(given: Given, option: str, topic: str | None, obstacle: str) -> tuple[ColumnSchema, ...]:
    """Return the schemas of the columns that an option names."""
    text = given.text(option)
    if text is None:
        for name in (*SCHEMA_NAMES, f"{option}.errors", f"{option}.register"):
            if given.text(name) is not None:
                given.refuse(name, f"it is for {option}=value; give both, or leave it out")
        return ()
    names = [name.strip() for name in text.split(",")]
    if not names or set(names) - {"key", "value"} or len(set(names)) < len(names):
        given.refuse(option, "write value, key, or key,value")
    columns: list[ColumnSchema] = []
    for name, prefix in (("key", "stele.schema.key"), ("value", "stele.schema")):
        settings = {end: given.text(f"{prefix}.{end}") for end in ("subject", "version", "message")}
        if name not in names:
            if unused := next((end for end, value in settings.items() if value is not None), None):
                given.refuse(
                    f"{prefix}.{unused}", f"it is of the {name}, which {option} does not name; leave it out"
                )
            continue
        subject = settings["subject"] or (topic and subject_name("topic", topic, None, is_key=name == "key"))
        if subject is None:
            raise OptionError(
                f"{obstacle}, so option {prefix}.subject must name the subject of the schema of the {name}"
            )
        version = None if settings["version"] in (None, "latest") else given.positive(f"{prefix}.version")
        columns.append(
            ColumnSchema(column=name, subject=subject, version=version, message=settings["message"])
        )
    return tuple(columns)


def _schema_options(
    given: Given,
    connection: Connection,
    columns: tuple[ColumnSchema, ...],
    *,
    nulls: bool = False,
    registers: bool = False,
) -> SchemaOptions:
    url, user = given.text("stele.registry.url"), given.text("stele.registry.user")
    password_file, api_key_file = (
        given.text("stele.registry.passwordFile"),
        given.text("stele.registry.apiKeyFile"),
    )
    if api_key_file is not None and (user is not None or password_file is not None):
        given.refuse(
            "stele.registry.apiKeyFile", "user and passwordFile are another login; give one of the two"
        )
    if url is None and (user or password_file or api_key_file):
        raise OptionError(
            "the registry of the broker has the login of the broker (user, passwordFile, apiKeyFile); name another "
            "registry with stele.registry.url, or leave its login out"
        )
    if url is not None:
        _check_registry(url)
    return SchemaOptions(
        connection=connection,
        registry=RegistryOptions(url=url, user=user, password_file=password_file, api_key_file=api_key_file),
        columns=columns,
        nulls=nulls,
        registers=registers,
    )


def _check_registry(url: str) -> None:
    try:
        transport = Endpoint.parse(url).transport
    except ValueError as error:
        # Without the value, which may hold a password.
        raise OptionError(f"option stele.registry.url names no registry: {error}") from None
    if has_password(url):
        raise OptionError(
            "option stele.registry.url holds a password, and Spark shows options; write http://HOST:8081, "
            "stele.registry.user and stele.registry.passwordFile"
        )
    if transport != "http":
        raise OptionError(
            "option stele.registry.url: a registry is reached over HTTP; write http://HOST:8081"
        )
