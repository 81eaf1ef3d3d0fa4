"""The JSON of the registry's answers."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired, TypedDict, cast

from starlette.requests import Request

from ...registry.definitions import Json, RegisteredSchema
from ..schemas import Shown

Level = Annotated[str, Shown(examples=["BACKWARD"])]
Mode = Annotated[str, Shown(examples=["READWRITE"])]


class ReferenceJson(TypedDict):
    name: str
    subject: str
    version: int


class SchemaText(TypedDict):
    """A schema without its place; ``schemaType`` is left out for AVRO."""

    schemaType: NotRequired[str]
    references: NotRequired[list[ReferenceJson]]
    metadata: NotRequired[dict[str, Any]]
    ruleSet: NotRequired[dict[str, Any]]
    schema: str


class SchemaJson(SchemaText):
    """A version of a subject; ``guid``, ``ts`` and ``deleted`` are for clients that take members they do not know."""

    subject: str
    version: int
    id: int
    guid: NotRequired[str]
    ts: NotRequired[int]
    deleted: NotRequired[bool]


class SchemaOfId(SchemaText):
    """The schema with an id; the same members as ``SchemaJson`` for such clients."""

    subject: NotRequired[str]
    version: NotRequired[int]
    guid: NotRequired[str]
    maxId: NotRequired[int]


class RegisteredJson(TypedDict):
    """The id of a schema that was registered; such clients also get its version and GUID.

    confluent-kafka caches a ``schema`` as the form that it has sent, which for Protobuf is a serialized
    descriptor: with the text, its own deserializer fails.
    """

    id: int
    version: NotRequired[int]
    guid: NotRequired[str]


class SubjectVersionJson(TypedDict):
    subject: str
    version: int


class ContextIdJson(TypedDict):
    context: str
    id: int


class CompatibilityJson(TypedDict):
    is_compatible: bool
    messages: NotRequired[list[str]]


class _ConfigMembers(TypedDict, total=False):
    normalize: bool
    alias: str
    aliasForDeks: str
    validateFields: bool
    validateNewSchemas: bool
    validateRules: bool
    compatibilityPolicy: str
    compatibilityGroup: str
    defaultMetadata: dict[str, Any]
    overrideMetadata: dict[str, Any]
    defaultRuleSet: dict[str, Any]
    overrideRuleSet: dict[str, Any]


class ConfigJson(_ConfigMembers, total=False):
    """A configuration."""

    compatibilityLevel: Level


class ChangedConfig(_ConfigMembers, total=False):
    """What a change of a configuration has set: its level has another name here."""

    compatibility: Level


class ModeJson(TypedDict):
    mode: Mode


def takes_more(request: Request) -> bool:
    """Return whether the client takes members of answers that it may not know.

    Those before it may be strict. One that tells its version knows what is newer than these members.
    """
    headers = request.headers
    return (
        headers.get("confluent-accept-unknown-properties", "").lower() == "true"
        or "confluent-client-version" in headers
    )


def schema_json(found: RegisteredSchema, *, more: bool) -> SchemaJson:
    """Describe a version of a subject."""
    answer: dict[str, Any] = {"subject": found.subject, "version": found.version, "id": found.id}
    if more:
        answer["guid"] = found.guid
    if found.schema_type != "AVRO":
        answer["schemaType"] = found.schema_type
    if found.references:
        answer["references"] = [reference._asdict() for reference in found.references]
    if found.metadata:
        answer["metadata"] = found.metadata
    if found.rule_set:
        answer["ruleSet"] = found.rule_set
    answer["schema"] = found.text
    if more:
        answer["ts"] = found.timestamp_ms
        if found.is_deleted:
            answer["deleted"] = True
    return cast("SchemaJson", answer)


def schema_of_id(found: RegisteredSchema, max_id: int | None, *, more: bool) -> SchemaOfId:
    """Describe the schema with an id."""
    answer: dict[str, Any] = {**schema_json(found, more=more)}
    for name in ("id", "ts", "deleted", *(() if more else ("subject", "version"))):
        answer.pop(name, None)
    if max_id is not None:
        answer["maxId"] = max_id
    return cast("SchemaOfId", answer)


def registered_json(found: RegisteredSchema, *, more: bool) -> RegisteredJson:
    """Describe a schema that was registered."""
    if more:
        return {"id": found.id, "version": found.version, "guid": found.guid}
    return {"id": found.id}


def changed_config(changes: Json) -> ChangedConfig:
    """Describe what a change has set."""
    names = {"compatibilityLevel": "compatibility"}
    return cast("ChangedConfig", {names.get(name, name): value for name, value in changes.items()})
