"""What a schema of any type can do, and how schemas and values are refused."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, Protocol

SchemaType = Literal["AVRO", "JSON", "PROTOBUF"]


class Reference(NamedTuple):
    """Another schema that a schema uses, under the name by which its text calls it."""

    name: str
    subject: str
    version: int


class InvalidSchema(Exception):
    """A text that is no schema of its type; ``reason`` says why, and where."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class InvalidValue(Exception):
    """A value, or bytes, that a schema does not describe.

    ``pointer`` is the place within the value, a JSON pointer (RFC 6901): "" is the whole value.
    """

    def __init__(self, pointer: str, reason: str) -> None:
        super().__init__(f"{pointer or 'the value'}: {reason}")
        self.pointer = pointer
        self.reason = reason

    def within(self, token: str | int) -> InvalidValue:
        """Return the same error of the object or array that has the value as its member ``token``."""
        escaped = str(token).replace("~", "~0").replace("/", "~1")
        return InvalidValue(f"/{escaped}{self.pointer}", self.reason)


class ParsedSchema(Protocol):
    """A schema that was parsed together with those that it refers to."""

    @property
    def type(self) -> SchemaType: ...

    @property
    def canonical(self) -> str:
        """The text by which two schemas of a type are equal."""
        ...

    @property
    def full_name(self) -> str | None:
        """The name of the record or message that it describes, with its namespace; None if it has none."""
        ...

    def normalized(self) -> str:
        """Return the text by which two schemas are equal that differ in what does not matter, as the order of names."""
        ...

    def encode(self, value: Any) -> bytes:
        """Return a value in its JSON form as bytes, without a frame.

        Raises:
            InvalidValue: The schema does not describe it.
        """
        ...

    def decode(self, data: bytes | memoryview) -> Any:
        """Return bytes without a frame as a value in its JSON form.

        Raises:
            InvalidValue: They are no bytes of this schema.
        """
        ...
