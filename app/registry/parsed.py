"""Parses schemas in threads, and keeps those that were used last.

A schema may take a second and a hundred times the memory of its text, so few are parsed at a time, none before somebody
needs it, and a bounded number is kept.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable

from stele.schemas.definitions import InvalidSchema, ParsedSchema, Reference

from . import types
from .contents import Content, digest
from .definitions import Rule
from .names import Name
from .registrations import Comparisons, Missing
from .state import State, Version

# Threads are shared with files: some are always left for those.
_AT_ONCE = 2
# Characters of the schemas that are kept, those that they refer to included, and how many they are.
_KEPT_CHARACTERS, _KEPT = 4 << 20, 1000
# Of one schema, those of its references included.
_REFERENCES_MAX, _DEPTH_MAX = 1000, 50

# The contents that a schema refers to by their names, each after those that it refers to.
_Referred = dict[str, Content]
# Type and text of a schema, whether it is registered, and what it refers to.
_Source = tuple[str, str, bool, tuple[tuple[str, Content], ...]]


class ParsedSchemas:
    """The parsed schemas of one registry."""

    def __init__(self) -> None:
        self._kept: OrderedDict[_Source, ParsedSchema] = OrderedDict()
        self._characters = 0
        self._gate = asyncio.Semaphore(_AT_ONCE)

    async def of(self, state: State, version: Version) -> ParsedSchema:
        """Return the schema of a version. Raises ``InvalidSchema``, also if a schema is gone that it refers to."""
        content = version.content
        return await self.parse(
            state, version.name, content.schema_type, content.text, content.references, is_registered=True
        )

    def characters(self, state: State, version: Version) -> int:
        """Return the size of a schema with those that it refers to. Raises ``InvalidSchema`` if one is gone."""
        return len(version.content.text) + sum(map(len, self.sources(state, version).values()))

    def sources(self, state: State, version: Version) -> dict[str, str]:
        """Return the texts that a schema refers to, each after those that it refers to. Raises ``InvalidSchema``."""
        referred: _Referred = {}
        _collect(state, version.name, version.content.references, referred, 0)
        return {name: content.text for name, content in referred.items()}

    async def parse(
        self,
        state: State,
        name: Name,
        schema_type: str,
        text: str,
        references: Iterable[Reference],
        *,
        is_registered: bool,
    ) -> ParsedSchema:
        """Return a schema of a subject; one that ``is_registered`` may have invalid names. Raises ``InvalidSchema``."""
        referred: _Referred = {}
        _collect(state, name, references, referred, 0)
        source = (schema_type, text, is_registered, tuple(referred.items()))
        schema = self._kept.get(source)
        if schema is not None:
            self._kept.move_to_end(source)
            return schema
        texts = {name: content.text for name, content in referred.items()}
        async with self._gate:
            schema = await asyncio.to_thread(
                types.parse, schema_type, text, texts, is_registered=is_registered
            )
        if source not in self._kept:
            self._kept[source] = schema
            self._characters += _characters(source)
            while len(self._kept) > 1 and (self._characters > _KEPT_CHARACTERS or len(self._kept) > _KEPT):
                self._characters -= _characters(self._kept.popitem(last=False)[0])
        return schema

    async def find(self, state: State, missing: Missing, new: ParsedSchema, comparisons: Comparisons) -> None:
        """Find out what a decision about the schema ``new`` lacks."""
        for version in missing.digests:
            content = version.content
            try:
                schema = await self.of(state, version)
                content.normalized, content.canonical = await asyncio.to_thread(digests, schema)
            except InvalidSchema:
                content.normalized = content.canonical = b""
        for version, rule in missing.comparisons:
            comparisons.problems[version.content, rule] = await self._compare(state, version, rule, new)

    async def _compare(
        self, state: State, version: Version, rule: Rule, new: ParsedSchema
    ) -> tuple[str, ...]:
        try:
            old = await self.of(state, version)
        except InvalidSchema as error:
            return (f"it is no valid schema of type {version.content.schema_type}: {error.reason}",)
        async with self._gate:
            return await asyncio.to_thread(types.incompatibilities, new, old, rule)


def digests(schema: ParsedSchema) -> tuple[bytes, bytes]:
    """Return the digests of the normalized and of the canonical text of a schema."""
    return digest(schema.normalized()), digest(schema.canonical)


def _collect(
    state: State, name: Name, references: Iterable[Reference], referred: _Referred, depth: int
) -> None:
    """Add what ``references`` of the subject ``name`` lead to. Of two with one name the first counts."""
    for reference in references:
        if reference.name in referred:
            continue
        version = state.version(name.near(reference.subject).qualified, reference.version)
        if version is None:
            raise InvalidSchema(
                f"it refers to version {reference.version} of subject {reference.subject!r}, which is gone"
            )
        if len(referred) >= _REFERENCES_MAX or depth >= _DEPTH_MAX:
            raise InvalidSchema(
                f"it refers to more than {_REFERENCES_MAX} schemas, or over more than {_DEPTH_MAX} others"
            )
        # Its place is after those that it refers to, and a circle ends here.
        referred[reference.name] = version.content
        _collect(state, version.name, version.content.references, referred, depth + 1)
        referred[reference.name] = referred.pop(reference.name)


def _characters(source: _Source) -> int:
    return len(source[1]) + sum(len(content.text) for _, content in source[3])
