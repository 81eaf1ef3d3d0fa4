"""What requests to the registry carry, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from stele.schemas.definitions import Reference, SchemaType

# Schema and configuration of Confluent's API as JSON: members as in the topic, and none of them None.
Json = Mapping[str, Any]

LEVELS = (
    "NONE",
    "BACKWARD",
    "FORWARD",
    "FULL",
    "BACKWARD_TRANSITIVE",
    "FORWARD_TRANSITIVE",
    "FULL_TRANSITIVE",
)
MODES = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT", "FORWARD")
TYPES: tuple[SchemaType, ...] = ("AVRO", "JSON", "PROTOBUF")

DEFAULT_LEVEL = "BACKWARD"
DEFAULT_MODE = "READWRITE"
VERSION_MAX = 2**31 - 1


class Rule(NamedTuple):
    """How a new schema is compared with an old one.

    By ``level`` BACKWARD the new one reads data of the old one, by FORWARD the other way round, by FULL both.
    ``is_lenient``: data is written with the properties that a JSON Schema names, and readers ignore others.
    """

    level: str
    is_lenient: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSchema:
    """The body of a request that registers, looks up or checks a schema.

    ``schema_type`` is what the client wrote, in its case. ``id`` is for the mode IMPORT; ``version`` must be the next
    one in other modes; 0 and -1 mean none.
    """

    text: str
    schema_type: str = "AVRO"
    references: tuple[Reference, ...] = ()
    metadata: Json | None = None
    rule_set: Json | None = None
    id: int | None = None
    version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredSchema:
    """A version of a subject.

    ``text`` is in the asked ``format``. ``guid`` is a UUID in its canonical form. ``timestamp_ms`` and ``offset`` are
    those of its record in the topic.
    """

    subject: str
    version: int
    id: int
    guid: str
    schema_type: SchemaType
    text: str
    references: tuple[Reference, ...] = ()
    metadata: Json | None = None
    rule_set: Json | None = None
    is_deleted: bool = False
    timestamp_ms: int = -1
    offset: int = -1


class SubjectVersion(NamedTuple):
    subject: str
    version: int


class ContextId(NamedTuple):
    """A schema id within a context; the default context is "."."""

    context: str
    id: int


@dataclass(frozen=True, slots=True)
class Compatibility:
    """The answer of a compatibility check; ``messages`` has the reasons if there are any."""

    is_compatible: bool
    messages: tuple[str, ...] = ()
