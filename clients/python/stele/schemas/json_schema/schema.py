"""A JSON Schema that encodes and decodes values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from ..definitions import InvalidSchema, InvalidValue, SchemaType
from .bounds import check_efforts
from .documents import read_documents, write_json
from .evaluation import Budget, Evaluation, TooComplex
from .nodes import Node, build
from .patterns import STEPPED_CHARACTERS_MAX, Patterns, need_steps, sizes_of_patterns
from .validators import Validator
from .values import is_object

# Up to a second: the value is refused in any case.
_REASON_STEPS_MAX = 100_000
_PROMPT_NS = 5e6


def parse(text: str, references: Mapping[str, str] | None = None) -> JsonSchema:
    """Return the schema that ``text`` is.

    ``references`` are the texts of other schemas by the names of its references. A ``$ref`` is first looked for
    among the ids of all these texts, then among the names: as it is written, and relative to the id of the schema
    in which it stands; then it may be a meta-schema of a draft. Nothing else is ever read, and no network asked.

    Raises:
        InvalidSchema: It is no schema of its draft, refers to something unknown, or is beyond a bound.
    """
    try:
        return JsonSchema(text, references or {})
    except RecursionError:
        raise InvalidSchema("its schemas refer to each other in too long a chain") from None


class JsonSchema:
    """A parsed schema, see ``ParsedSchema``.

    Values are JSON as it is: an object is a dict, an integer is exact whatever its size, other numbers are doubles.
    ``format`` is an annotation. Names that stand twice in an object of a value count as most readers
    take them: the last one.
    """

    def __init__(self, text: str, references: Mapping[str, str]) -> None:
        documents = read_documents(text, references)
        self._document = documents[0].schema
        nodes = build(documents)
        self.root: Node = nodes[0]
        sizes = sizes_of_patterns(nodes)
        self._needs_steps = need_steps(sizes)
        byte_ns = check_efforts(nodes, sizes, needs_steps=self._needs_steps)
        # What it was parsed from; and the size up to which any value is validated in 5 ms.
        self.source: tuple[str, Mapping[str, str]] = text, references
        self.prompt_bytes: int = int(_PROMPT_NS / byte_ns)
        self._validator = Validator(self.root, needs_steps=self._needs_steps)
        self._patterns = Patterns()
        self.canonical: str = write_json(self._document)

    @property
    def type(self) -> SchemaType:
        return "JSON"

    @property
    def full_name(self) -> str | None:
        """The title, as in other registries."""
        title = self._document.get("title") if is_object(self._document) else None
        return title if isinstance(title, str) and title else None

    def normalized(self) -> str:
        return write_json(self._document, sort_keys=True)

    def encode(self, value: Any) -> bytes:
        try:
            data = msgspec.json.encode(value)
        except (TypeError, ValueError, OverflowError, RecursionError):
            raise InvalidValue("", "it is no JSON value") from None
        self._check_value(value, len(data))
        # Numbers that JSON does not have are written as null.
        if b"null" in data and not _is_finite(value):
            raise InvalidValue("", "NaN and infinities are no numbers of JSON")
        return data

    def decode(self, data: bytes | memoryview) -> Any:
        value = _read(data)
        self._check_value(value, len(data))
        return value

    def check(self, data: bytes | memoryview) -> None:
        """Check bytes as ``decode`` does."""
        self._check_value(_read(data), len(data))

    def is_valid(self, data: bytes | memoryview) -> bool:
        """Return whether ``check`` accepts bytes, without finding out why not, which may take a second."""
        try:
            value = _read(data)
            return not self._is_too_large(len(data)) and self._validator.is_valid(value)
        except (InvalidValue, ValueError, TooComplex, RecursionError):
            return False

    def _is_too_large(self, size: int) -> bool:
        return self._needs_steps and size > STEPPED_CHARACTERS_MAX

    def _check_value(self, value: Any, size: int) -> None:
        if self._is_too_large(size):
            reason = f"patterns with lookaround or back references are matched in up to {STEPPED_CHARACTERS_MAX} bytes"
            raise InvalidValue("", reason)
        try:
            if self._validator.is_valid(value):
                return
            refusal = Evaluation(Budget(_REASON_STEPS_MAX), self._patterns).refusal(self.root, value)
        except ValueError:
            raise InvalidValue("", "it is no JSON value") from None
        except (TooComplex, RecursionError):
            raise InvalidValue(
                "", "the schema refuses it; it is too large or has too many levels to say where"
            ) from None
        if refusal is None:
            raise InvalidValue("", "the schema refuses it")
        raise InvalidValue(refusal.pointer, refusal.reason)


def _read(data: bytes | memoryview) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        # Its message names places, no content.
        raise InvalidValue("", f"it is not JSON: {error}") from None
    except RecursionError:
        raise InvalidValue("", "it has too many levels") from None


def _is_finite(value: Any) -> bool:
    left = [value]
    while left:
        each = left.pop()
        if is_object(each):
            left += each.values()
        elif isinstance(each, list | tuple):
            left += cast("list[Any]", each)
        elif isinstance(each, float) and not math.isfinite(each):
            return False
    return True
