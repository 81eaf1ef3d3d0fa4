"""A schema, and a version of a subject."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, cast

from ..schemas.definitions import Reference, SchemaType


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema as a registry has it.

    ``references`` are the schemas that its text uses. ``metadata`` and ``rule_set`` are kept by the
    registry, and mean nothing here.
    """

    text: str
    type: SchemaType = "AVRO"
    references: tuple[Reference, ...] = ()
    metadata: Mapping[str, Any] | None = None
    rule_set: Mapping[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the schema as the body of a request."""
        document: dict[str, Any] = {"schema": self.text}
        if self.type != "AVRO":
            document["schemaType"] = self.type
        if self.references:
            document["references"] = [reference._asdict() for reference in self.references]
        if self.metadata is not None:
            document["metadata"] = self.metadata
        if self.rule_set is not None:
            document["ruleSet"] = self.rule_set
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Read the schema of an answer. Raises KeyError, TypeError or ValueError if it has none."""
        references = cast("list[dict[str, Any]]", document.get("references") or [])
        return cls(
            text=str(document["schema"]),
            type=document.get("schemaType") or "AVRO",
            references=tuple(
                Reference(str(one["name"]), str(one["subject"]), int(one["version"])) for one in references
            ),
            metadata=document.get("metadata"),
            rule_set=document.get("ruleSet"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredSchema:
    """A version of a subject.

    Some registries return neither ``version`` nor ``guid`` for a registration. The GUID is the same
    in every registry.
    """

    subject: str
    id: int
    schema: Schema
    version: int | None = None
    guid: str | None = None

    @classmethod
    def from_json(
        cls, document: Mapping[str, Any], *, subject: str = "", schema: Schema | None = None
    ) -> Self:
        """Read an answer; ``subject`` and ``schema`` are those of the request, if the answer lacks them.

        Raises KeyError, TypeError or ValueError if it is none.
        """
        return cls(
            subject=document.get("subject") or subject,
            id=int(document["id"]),
            schema=Schema.from_json(document) if schema is None else schema,
            version=document.get("version"),
            guid=document.get("guid"),
        )


@dataclass(frozen=True, slots=True)
class Compatibility:
    """The answer to a check; ``messages`` say what is incompatible."""

    is_compatible: bool
    messages: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.is_compatible
