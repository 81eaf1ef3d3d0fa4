"""The types of records in JSON; ``json_records`` converts them."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired, TypedDict

from ..schemas import Shown, one_of

Durability = Annotated[str, one_of("Durability", "replicated", "synced", "appended", "none")]
Base64 = Annotated[str, Shown(contentEncoding="base64")]
_NAMED = Shown("encode it with this schema")
_TIMESTAMP = Shown("ms since the epoch; -1 for none")
_STORED = Shown("a string is stored as its text, any other JSON value as compact JSON; null is a tombstone")
_AS_READ = Shown(
    "text; with as=json the value itself if it is valid JSON; the value that schema describes if that is present"
)
_KEY_AS_READ = Shown("text or null; the key that keySchema describes if that is present")


class InPartition(TypedDict):
    """Something in a partition."""

    topic: str
    partition: int


class Header(TypedDict):
    key: str
    value: NotRequired[str | None]
    value_b64: NotRequired[Base64]


class ValueSchema(TypedDict):
    """The registered schema of a key or value that is shown as JSON."""

    id: int
    subject: str
    version: int
    type: Annotated[str, one_of("SchemaType", "AVRO", "JSON", "PROTOBUF")]
    message: NotRequired[Annotated[str, Shown("Protobuf: the message, if it is not the first of its file")]]


class SchemaName(TypedDict, total=False):
    """A registered schema, by its id, or by a subject and a version of it."""

    id: int
    subject: str
    version: Annotated[int | str, Shown("a number, or latest (the default); only without an id")]
    type: Annotated[str, Shown("ignored")]
    message: Annotated[str, Shown("Protobuf: the message, if it is not the first of its file")]


class _Content(TypedDict, total=False):
    key_b64: Base64
    value_b64: Base64
    headers: list[Header]


class _OfTopic(TypedDict):
    topic: str


class NewRecordJson(_Content, total=False):
    """A record as a producer sends it."""

    key: Annotated[Any, Shown("text or null; any JSON if it has a schema")]
    schema: Annotated[SchemaName, _NAMED]
    keySchema: Annotated[SchemaName, _NAMED]
    value: Annotated[Any, _STORED]
    timestamp: Annotated[int | None, _TIMESTAMP]
    partition: Annotated[int | None, Shown(minimum=0)]


class NewTopicRecord(_OfTopic, NewRecordJson):
    """A record of a transaction."""


class _ReadRecord(_Content):
    partition: int
    offset: int
    timestamp: Annotated[int, _TIMESTAMP]
    key: NotRequired[Annotated[Any, _KEY_AS_READ]]
    value: NotRequired[Annotated[Any, _AS_READ]]
    schema: NotRequired[ValueSchema]
    keySchema: NotRequired[ValueSchema]


class Record(_ReadRecord, total=False):
    """A record as it is read."""

    value_bytes: Annotated[int, Shown("with preview: the whole size of the value")]
    is_cut: Annotated[bool, Shown("with preview: present if anything was cut off")]


class LeasedRecord(_OfTopic, _ReadRecord):
    """A record that a lease holds."""


class _Delivered(TypedDict):
    topic: str
    deliveries: int


class SharedRecord(_Delivered, _ReadRecord):
    """A record that a lock holds."""


class TransactionReceipt(InPartition):
    """Where a record of a transaction was appended."""

    offset: int
    timestamp: int
