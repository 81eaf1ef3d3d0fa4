"""A serializer with a schema: values → framed bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypedDict, TypeVar, cast

from ..schemas.subjects import Strategy, subject_name
from ..serializers import HeadedSerializer, Headers
from .codecs import Encoding, Form
from .definitions import RegisteredSchema
from .frames import header, prefix

T = TypeVar("T")

Frame = Literal["prefix", "header"]


class SerializerOptions(TypedDict, total=False):
    """Keyword arguments that make a serializer; see ``SerializerSettings``."""

    key: bool
    subject: str | None
    strategy: Strategy
    auto_register: bool
    use_latest: bool
    normalize: bool
    message: str | None
    frame: Frame
    form: Form


@dataclass(frozen=True, slots=True, kw_only=True)
class SerializerSettings:
    """How a serializer finds its schema, and how it names it in records.

    - ``key``: it is for keys, not for values.
    - ``subject``: the subject of the schema. Without it, ``strategy`` names it: ``topic`` TOPIC-value or
      TOPIC-key, ``record`` the name of the record or message, ``topic-record`` TOPIC-NAME.
    - ``auto_register``: register the schema unless the subject has it. False looks it up, and needs
      no right to write.
    - ``use_latest``: serialize with the latest version of the subject in place of the given schema.
    - ``normalize``: a schema that differs only in what has no meaning is the same one.
    - ``message``: the name of the Protobuf message that values are, if they are no messages themselves;
      without it, the first one of the schema.
    - ``frame``: ``prefix`` puts the id of the schema before the bytes, ``header`` its GUID into a header.
    - ``form``: ``python`` takes values as ``stele.registry.codecs`` has them, ``json`` in the JSON form of
      ``stele.schemas``.
    """

    key: bool = False
    subject: str | None = None
    strategy: Strategy = "topic"
    auto_register: bool = True
    use_latest: bool = False
    normalize: bool = False
    message: str | None = None
    frame: Frame = "prefix"
    form: Form = "python"

    def subject_of(self, topic: str | None, full_name: str | None) -> str:
        """Return the subject of a schema. Raises ValueError if its name is missing."""
        if self.subject is not None:
            return self.subject
        if topic is None and self.strategy != "record":
            raise ValueError("give the topic or the subject of the serializer")
        return subject_name(self.strategy, topic or "", full_name, is_key=self.key)


class SchemaSerializer(HeadedSerializer[T]):
    """Serializes values with one schema of a registry; it needs no request.

    It is a serializer for a producer, and for Kafka clients that take functions, which also get None,
    and return it. Keys are serialized by a call: ``producer.send(value, key=keys(key))``. ``registered``
    is its schema. With ``frame="header"``, a record needs its ``headers``; a producer adds those of its
    serializer.

    A call raises InvalidValue for a value that the schema does not describe.
    """

    def __init__(
        self, registered: RegisteredSchema, encoding: Encoding[T], settings: SerializerSettings
    ) -> None:
        self.registered = registered
        self._encode = encoding.encode
        self._prefix = b""
        if settings.frame == "prefix":
            self._prefix = prefix(registered.id, encoding.indexes)
        elif registered.guid is None:
            raise ValueError("this registry gives schemas no GUIDs, which frame='header' needs")
        else:
            self.headers: Headers = (header(registered.guid, encoding.indexes, is_key=settings.key),)

    def __call__(self, value: T | None) -> bytes:
        return cast("bytes", None) if value is None else self._prefix + self._encode(value)
