"""What is registered under an id: the text of a schema with all that belongs to it, and its digests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import copy
from hashlib import md5
from typing import Any, cast
from uuid import UUID

from stele.schemas.definitions import Reference

from .definitions import Json


class Content:
    """The content of a schema; it never changes.

    ``likeness`` is a digest of the text that white space and the order of JSON members do not change: schemas that are
    equal mostly have the same. ``canonical`` and ``normalized`` are digests of the texts by which schemas are compared,
    None until somebody has parsed it, which takes a hundred times as long, and b"" if the text is no valid schema.
    ``is_canonical``: the text is known to be the canonical one. ``quoted`` is the text as JSON, if somebody has made it in
    a thread.
    """

    __slots__ = (
        "canonical",
        "guid",
        "is_canonical",
        "likeness",
        "metadata",
        "normalized",
        "quoted",
        "references",
        "rule_set",
        "schema_type",
        "text",
    )

    def __init__(
        self,
        *,
        schema_type: str,
        text: str,
        references: tuple[Reference, ...] = (),
        metadata: Json | None = None,
        rule_set: Json | None = None,
        is_canonical: bool = False,
    ) -> None:
        self.schema_type = schema_type
        self.text = text
        self.references = references
        self.metadata = metadata or None
        self.rule_set = rule_set or None
        self.likeness = digest(schema_type + _plain(schema_type, text))
        self.guid = _guid(self)
        self.is_canonical = is_canonical
        self.canonical: bytes | None = digest(text) if is_canonical else None
        self.normalized: bytes | None = None
        self.quoted: bytes | None = None

    def with_rules(self, metadata: Json | None, rule_set: Json | None) -> Content:
        """Return the same schema with other metadata and rules, without a look at its text."""
        if (metadata or None, rule_set or None) == (self.metadata, self.rule_set):
            return self
        content = copy(self)
        content.metadata, content.rule_set = metadata or None, rule_set or None
        content.guid = _guid(content)
        return content

    def is_same(self, other: Content) -> bool:
        """Return whether two contents are equal to the byte."""
        return self.guid == other.guid and self.schema_type == other.schema_type


def digest(text: str) -> bytes:
    """Return 16 bytes that stand for a text."""
    return md5(text.encode(errors="surrogatepass"), usedforsecurity=False).digest()


def _plain(schema_type: str, text: str) -> str:
    if schema_type == "PROTOBUF":
        return "".join(text.split())
    try:
        return json.dumps(json.loads(text), sort_keys=True)
    except (ValueError, RecursionError):
        return text


# ── GUID ──


def _guid(content: Content) -> UUID:
    """Return the GUID that every registry gives a schema: its MD5, as Confluent's clients compute it.

    That of the text, the references (name, subject, version as int32), and for metadata and rules each the byte 1 and
    their strings; maps and sets in the order of their keys. Type, subject and id do not count.
    """
    state = md5(content.text.encode(errors="surrogatepass"), usedforsecurity=False)
    for reference in content.references:
        state.update(_utf8(reference.name) + _utf8(reference.subject))
        state.update((reference.version & 0xFFFFFFFF).to_bytes(4, "big"))
    if content.metadata:
        state.update(b"\1" + b"".join(_metadata_parts(content.metadata)))
    if content.rule_set:
        state.update(b"\1" + b"".join(_rule_set_parts(content.rule_set)))
    return UUID(bytes=state.digest())


def _metadata_parts(metadata: Json) -> Iterator[bytes]:
    for path, tags in sorted(_items(metadata.get("tags"))):
        yield _utf8(path)
        yield from map(_utf8, _sorted(tags))
    yield from _pairs(metadata.get("properties"))
    yield from map(_utf8, _sorted(metadata.get("sensitive")))


def _rule_set_parts(rule_set: Json) -> Iterator[bytes]:
    for kind in ("migrationRules", "domainRules", "encodingRules"):
        for rule in _list(rule_set.get(kind)):
            if isinstance(rule, dict):
                yield from _rule_parts(cast("dict[str, Any]", rule))
    yield _utf8(rule_set.get("enableAt"))


def _rule_parts(rule: Json) -> Iterator[bytes]:
    yield _utf8(rule.get("name"))
    yield _utf8(rule.get("doc"))
    yield _utf8(rule.get("kind") or "TRANSFORM")
    yield _utf8(rule.get("mode") or "WRITEREAD")
    yield _utf8(rule.get("type"))
    yield from map(_utf8, _sorted(rule.get("tags")))
    yield from _pairs(rule.get("params"))
    for name in ("expr", "onSuccess", "onFailure"):
        yield _utf8(rule.get(name))
    if rule.get("disabled") is True:
        yield b"\1"


def _pairs(value: Any) -> Iterator[bytes]:
    for key, item in sorted(_items(value)):
        yield _utf8(key)
        yield _utf8(item)


def _items(value: Any) -> list[tuple[str, Any]]:
    return list(cast("dict[str, Any]", value).items()) if isinstance(value, dict) else []


def _sorted(value: Any) -> list[str]:
    return sorted({str(item) for item in _list(value)})


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _utf8(value: Any) -> bytes:
    return b"" if value is None else str(value).encode(errors="surrogatepass")
