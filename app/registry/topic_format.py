"""The records of the topic ``_schemas``, as Confluent's registry and Karapace write and read them.

A key is compact JSON with its members in one order, because compaction compares bytes::

    {"keytype":"SCHEMA","subject":"orders-value","version":1,"magic":1}
    {"keytype":"CONFIG","subject":"orders-value","magic":0}               also MODE, DELETE_SUBJECT, CLEAR_SUBJECT
    {"keytype":"CONFIG","magic":0}                                        of the default context
    {"keytype":"NOOP","magic":0}

Older servers wrote other orders, another ``magic``, or ``"subject":null``. They are read as the same keys, but compaction
keeps their records beside ours: see ``State.foreign_keys``.

Values::

    SCHEMA          {"subject","version","id","schemaType"?,"references"?,"metadata"?,"ruleSet"?,"schema","deleted"}
    CONFIG          {"compatibilityLevel"?,"normalize"?,…}
    MODE            {"mode"}
    DELETE_SUBJECT  {"subject","version"}: the versions up to this one are soft-deleted
    CLEAR_SUBJECT   what is soft-deleted in this scope is gone
    NOOP            null in other registries, which read no value of it; here {"highestIds":{context: id}}

A SCHEMA record that was written here has the header ``stele-canonical``: its text is canonical in the sense of the code that
wrote it, so that nobody has to parse it to compare it with others.

A null value removes what the key names; that of a SCHEMA key deletes the version permanently. Records of other key types,
and those that cannot be read, stay in the topic and are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple, cast

from stele.schemas.definitions import Reference

from .contents import Content
from .definitions import VERSION_MAX, Json

SCHEMA, CONFIG, MODE = "SCHEMA", "CONFIG", "MODE"
DELETE_SUBJECT, CLEAR_SUBJECT = "DELETE_SUBJECT", "CLEAR_SUBJECT"
CONTEXT, NOOP = "CONTEXT", "NOOP"
_HIGHEST_IDS = "highestIds"

# To be counted up when the canonical text of a type changes.
CANONICAL = ("stele-canonical", b"1")


class Record(NamedTuple):
    """Key and value as bytes; a value None is null."""

    key: bytes
    value: bytes | None
    is_canonical: bool = False


class Key(NamedTuple):
    """What a record is about. ``subject`` "" is the default context; it is the context of a CONTEXT key."""

    type: str
    subject: str = ""
    version: int = 0

    def encoded(self) -> bytes:
        """Return the bytes of the key in the order that the newest servers write."""
        subject = b',"subject":%b' % _quoted(self.subject) if self.subject else b""
        if self.type == SCHEMA:
            return b'{"keytype":"SCHEMA"%b,"version":%d,"magic":1}' % (subject, self.version)
        return b'{"keytype":"%b"%b,"magic":0}' % (self.type.encode(), subject)


class SchemaValue(NamedTuple):
    """The value of a SCHEMA key."""

    id: int
    content: Content
    is_deleted: bool


class Unreadable(ValueError):
    """A record that is not understood, and why."""


def read_key(data: bytes | None) -> Key:
    """Parse a key, in the order of any server. Raises ``Unreadable``."""
    members = _object(data)
    keytype, subject = members.get("keytype"), members.get("subject")
    match keytype:
        case "SCHEMA":
            version = members.get("version")
            if not isinstance(subject, str) or not _is_number(version, 1):
                raise Unreadable("a SCHEMA key without subject or version")
            return Key(SCHEMA, subject, cast("int", version))
        case "CONFIG" | "MODE" | "CLEAR_SUBJECT":
            return Key(keytype, subject if isinstance(subject, str) else "")
        case "DELETE_SUBJECT" if isinstance(subject, str):
            return Key(DELETE_SUBJECT, subject)
        case "CONTEXT" if isinstance(members.get("context"), str):
            return Key(CONTEXT, members["context"])
        case "NOOP":
            return Key(NOOP)
        case _:
            raise Unreadable(f"a key of type {keytype!r}")


def read_value(key: Key, data: bytes | None, *, is_canonical: bool = False) -> SchemaValue | Json | None:
    """Parse the value of a key: that of a schema, an object, or None for null. Raises ``Unreadable``."""
    if not data or data == b"null":
        return None
    members = _object(data)
    return _read_schema(members, is_canonical) if key.type == SCHEMA else members


def _read_schema(members: dict[str, Any], is_canonical: bool) -> SchemaValue:
    schema_id, text = members.get("id"), members.get("schema")
    if not _is_number(schema_id, 0) or not isinstance(text, str):
        raise Unreadable("a schema without id or text")
    content = Content(
        schema_type=str(members.get("schemaType") or "AVRO"),
        text=text,
        references=read_references(members.get("references")),
        metadata=_object_or_none(members.get("metadata")),
        rule_set=_object_or_none(members.get("ruleSet")),
        is_canonical=is_canonical,
    )
    return SchemaValue(cast("int", schema_id), content, members.get("deleted") is True)


def read_references(value: Any) -> tuple[Reference, ...]:
    """Parse a list of references; None is none. Raises ``Unreadable``."""
    references: list[Reference] = []
    for member in value or ():
        match member:
            case {"name": str(name), "subject": str(subject), "version": int(version)}:
                references.append(Reference(name, subject, version))
            case _:
                raise Unreadable("a reference without name, subject or version")
    return tuple(references)


def read_deleted_up_to(value: Json) -> int:
    """Return the version up to which a DELETE_SUBJECT record deletes. Raises ``Unreadable``."""
    version = value.get("version")
    if not _is_number(version, 0):
        raise Unreadable("a deletion without version")
    return cast("int", version)


def read_mode(value: Json) -> str:
    """Return the mode of a MODE record. Raises ``Unreadable``."""
    mode = value.get("mode")
    if not isinstance(mode, str):
        raise Unreadable("a mode without name")
    return mode


def read_highest_ids(value: Json | None) -> dict[str, int]:
    """Return the highest id per context of a NOOP record; none in those of other registries."""
    ids = (value or {}).get(_HIGHEST_IDS)
    if not isinstance(ids, dict):
        return {}
    return {
        context: number for context, number in cast("dict[str, Any]", ids).items() if _is_number(number, 0)
    }


# ── written records ──


def schema_record(subject: str, version: int, value: SchemaValue) -> Record:
    """Return the record of a version."""
    content = value.content
    members: dict[str, Any] = {"subject": subject, "version": version, "id": value.id}
    if content.schema_type != "AVRO":
        members["schemaType"] = content.schema_type
    if content.references:
        members["references"] = [reference._asdict() for reference in content.references]
    if content.metadata:
        members["metadata"] = content.metadata
    if content.rule_set:
        members["ruleSet"] = content.rule_set
    text = content.quoted or encoded(content.text)
    deleted = b"true" if value.is_deleted else b"false"
    data = b'%b,"schema":%b,"deleted":%b}' % (encoded(members)[:-1], text, deleted)
    return Record(Key(SCHEMA, subject, version).encoded(), data, content.is_canonical)


def object_record(key: Key, value: Json) -> Record:
    """Return the record of a configuration or a mode."""
    return Record(key.encoded(), encoded(value))


def delete_subject_record(subject: str, version: int) -> Record:
    """Return the record that soft-deletes the versions of a subject up to ``version``."""
    return object_record(Key(DELETE_SUBJECT, subject), {"subject": subject, "version": version})


def highest_ids_record(ids: Mapping[str, int]) -> Record:
    """Return the record that keeps the highest ids, whatever becomes of the schemas that had them."""
    return object_record(Key(NOOP), {_HIGHEST_IDS: dict(sorted(ids.items()))})


# The keys of a subject's versions come together.
@lru_cache(maxsize=1000)
def _quoted(subject: str) -> bytes:
    return encoded(subject)


def encoded(value: Json | str) -> bytes:
    """Return compact JSON."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        # Half of a surrogate pair, from another registry: as an escape sequence it stays what it is.
        return json.dumps(value, separators=(",", ":")).encode()


def _object(data: bytes | None) -> dict[str, Any]:
    try:
        value = json.loads(data or b"")
    except (ValueError, RecursionError) as error:
        raise Unreadable("no JSON") from error
    if not isinstance(value, dict):
        raise Unreadable("no JSON object")
    return cast("dict[str, Any]", value)


def _object_or_none(value: Any) -> Json | None:
    return cast("Json", value) if isinstance(value, dict) and value else None


def _is_number(value: Any, minimum: int) -> bool:
    return type(value) is int and minimum <= value <= VERSION_MAX
