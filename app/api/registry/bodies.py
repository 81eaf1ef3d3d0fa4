"""Decode the JSON bodies of requests to the registry."""

from __future__ import annotations

from typing import Annotated, Any, Generic, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType
from starlette.requests import Request
from stele.schemas.definitions import Reference

from ...registry.definitions import LEVELS, MODES, Json, NewSchema
from ..errors import HttpError
from ..json_bodies import FORM, LIST_BYTES_MAX
from ..openapi.operations import JSON, Content
from ..records.json_records import reason
from ..requests import OCTETS, UTF_8, media_and_charset, read_body
from ..schemas import Components, Schema, Shown
from ..state import api_state
from .errors import MEDIA_TYPES

_ACCEPTED = (*MEDIA_TYPES, OCTETS, FORM)
# Of JSON, by the first bytes of which some decoders tell them apart.
_CHARSETS = frozenset({"utf-16", "utf-16le", "utf-16be", "utf-32", "utf-32le", "utf-32be", "iso-8859-1"})

_T = TypeVar("_T", bound=Struct)


class RegistryBody(Generic[_T]):
    """The JSON body of a route, decoded as ``kind``; members that it does not have are ignored."""

    def __init__(self, kind: type[_T], example: str) -> None:
        self._kind = kind
        self._example = example

    async def read(self, request: Request) -> _T:
        """Read the body.

        Raises:
            HttpError: 413 if it is too large, 415 if it is not JSON, 400 if that cannot be read, 422 if it is not a ``kind``.
        """
        media_type, charset = media_and_charset(request, JSON)
        if media_type not in _ACCEPTED or charset not in UTF_8 | _CHARSETS:
            raise HttpError(415, f"send {MEDIA_TYPES[0]}")
        raw = await read_body(
            request, min(api_state(request).settings.request_body_bytes_max, LIST_BYTES_MAX)
        )
        try:
            if charset in _CHARSETS:
                raw = raw.decode(charset).encode()
            return msgspec.json.decode(raw, type=self._kind)
        except msgspec.ValidationError as error:
            raise HttpError(422, f"the body is not like {self._example}: {error}") from error
        except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
            raise HttpError(400, f"the body is not JSON: {reason(error)}") from error

    def document(self, components: Components) -> Schema:
        return {"content": Content(JSON, self._kind, self._example).document(components), "required": True}


class ReferenceBody(Struct):
    """A schema that another one uses, and the name by which it calls it."""

    name: str
    subject: str
    version: int


class SchemaBody(Struct, rename="camel"):
    """A schema to register, to look up or to check."""

    schema: Annotated[str, Shown("its text, also if it is JSON")]
    schema_type: Annotated[str | None, Shown("AVRO, JSON or PROTOBUF; AVRO if it is left out")] = None
    references: list[ReferenceBody] | None = None
    metadata: dict[str, Any] | None = None
    rule_set: dict[str, Any] | None = None
    id: Annotated[int | None, Shown("only in mode IMPORT")] = None
    version: int | None = None

    def given(self) -> NewSchema:
        return NewSchema(
            text=self.schema,
            schema_type=self.schema_type or "AVRO",
            references=tuple(Reference(r.name, r.subject, r.version) for r in self.references or ()),
            metadata=self.metadata,
            rule_set=self.rule_set,
            id=self.id,
            version=self.version,
        )


class ConfigBody(Struct, rename="camel"):
    """Members of a configuration to change; null removes one."""

    compatibility: Annotated[str | UnsetType | None, Shown(kind=Annotated[str, Shown(enum=list(LEVELS))])] = (
        UNSET
    )
    compatibility_level: Annotated[str | UnsetType | None, Shown("the same as compatibility", kind=str)] = (
        UNSET
    )
    normalize: Annotated[bool | UnsetType | None, Shown(kind=bool)] = UNSET
    alias: Annotated[str | UnsetType | None, Shown(kind=str)] = UNSET
    alias_for_deks: Annotated[str | UnsetType | None, Shown(kind=str)] = UNSET
    validate_fields: Annotated[bool | UnsetType | None, Shown(kind=bool)] = UNSET
    validate_new_schemas: Annotated[bool | UnsetType | None, Shown(kind=bool)] = UNSET
    validate_rules: Annotated[bool | UnsetType | None, Shown(kind=bool)] = UNSET
    compatibility_policy: Annotated[str | UnsetType | None, Shown(kind=str)] = UNSET
    compatibility_group: Annotated[str | UnsetType | None, Shown(kind=str)] = UNSET
    default_metadata: Annotated[dict[str, Any] | UnsetType | None, Shown(kind=dict[str, Any])] = UNSET
    override_metadata: Annotated[dict[str, Any] | UnsetType | None, Shown(kind=dict[str, Any])] = UNSET
    default_rule_set: Annotated[dict[str, Any] | UnsetType | None, Shown(kind=dict[str, Any])] = UNSET
    override_rule_set: Annotated[dict[str, Any] | UnsetType | None, Shown(kind=dict[str, Any])] = UNSET

    def changes(self) -> Json:
        """Return the members that are named, as the registry stores them."""
        changes = {
            field.encode_name: value
            for field in msgspec.structs.fields(self)
            if (value := getattr(self, field.name)) is not UNSET
        }
        if "compatibility" in changes:
            changes["compatibilityLevel"] = changes.pop("compatibility")
        return changes


class ModeBody(Struct):
    """A mode to set."""

    mode: Annotated[str, Shown(enum=list(MODES))]


SCHEMA = RegistryBody(SchemaBody, '{"schema": "\\"string\\""}')
CONFIG = RegistryBody(ConfigBody, '{"compatibility": "FULL"}')
MODE = RegistryBody(ModeBody, '{"mode": "READONLY"}')
