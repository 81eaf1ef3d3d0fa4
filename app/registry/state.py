"""What the records of the topic add up to: subjects, versions, ids, configurations and modes.

A pure fold: ``apply`` takes one record after the other, and what it is given never depends on what was decided here. So
records of any registry in any order lead somewhere, as a permanent deletion without the soft one that compaction has
removed. Where two schemas have one id, the first keeps it: values that were written with it stay readable.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterator
from typing import TypeVar
from uuid import UUID

from .contents import Content
from .definitions import DEFAULT_LEVEL, DEFAULT_MODE, Json
from .names import DEFAULT_CONTEXT, Name
from .topic_format import (
    CLEAR_SUBJECT,
    CONFIG,
    CONTEXT,
    DELETE_SUBJECT,
    MODE,
    SCHEMA,
    Key,
    SchemaValue,
    read_deleted_up_to,
    read_highest_ids,
    read_mode,
)

# Schemas that were deleted permanently and get their id back if they are registered again before the next start.
_PAST_MAX = 10_000

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


class Version:
    """A version of a subject. Its id and content change only if another registry has written other ones."""

    __slots__ = ("content", "id", "is_deleted", "name", "number", "offset", "timestamp_ms")

    def __init__(self, name: Name, number: int, value: SchemaValue, timestamp_ms: int, offset: int) -> None:
        self.name = name
        self.number = number
        self.id = value.id
        self.content = value.content
        self.is_deleted = value.is_deleted
        self.timestamp_ms = timestamp_ms
        self.offset = offset

    def referred(self) -> Iterator[tuple[str, int]]:
        """Yield subject and version of each reference."""
        for reference in self.content.references:
            yield self.name.near(reference.subject).qualified, reference.version


class Subject:
    """The versions of a subject by their numbers, ascending; those that are deleted permanently are gone."""

    __slots__ = ("name", "versions")

    def __init__(self, name: Name) -> None:
        self.name = name
        self.versions: dict[int, Version] = {}

    def live(self) -> list[Version]:
        """Return the versions that are not deleted, ascending."""
        return [version for version in self.versions.values() if not version.is_deleted]

    @property
    def last_number(self) -> int:
        return next(reversed(self.versions), 0)

    def put(self, version: Version) -> None:
        is_last = version.number > self.last_number
        self.versions[version.number] = version
        if not is_last:
            self.versions = dict(sorted(self.versions.items()))


class Context:
    """The ids of a context. ``highest_id`` was given, though its schema may be gone."""

    __slots__ = ("by_id", "by_likeness", "highest_id", "past_ids")

    def __init__(self) -> None:
        self.by_id: dict[int, list[Version]] = {}
        self.by_likeness: dict[bytes, list[Version]] = {}
        self.past_ids: dict[tuple[str, UUID], int] = {}
        self.highest_id = 0

    def content_of(self, schema_id: int) -> Content | None:
        """Return the schema that has an id; the first one if a topic has given it twice."""
        versions = self.by_id.get(schema_id)
        return versions[0].content if versions else None

    def likenesses(self, likeness: bytes) -> dict[int, Content]:
        """Return the schemas that look like one, by their ids."""
        return {
            version.id: version.content
            for version in self.by_likeness.get(likeness, ())
            if (first := self.content_of(version.id)) is not None and first.is_same(version.content)
        }

    def past_id(self, content: Content) -> int | None:
        """Return the id that a deleted schema had, if nobody has it now."""
        schema_id = self.past_ids.get((content.schema_type, content.guid))
        return None if schema_id in self.by_id else schema_id


class State:
    """The fold over the records before ``position``."""

    def __init__(self) -> None:
        self.position = 0
        self.subjects: dict[str, Subject] = {}
        # Those of ``subjects``, sorted.
        self.names: list[str] = []
        self.contexts: dict[str, Context] = {}
        # By the qualified name of a subject or context; "" is the default context.
        self.configs: dict[str, Json] = {}
        self.modes: dict[str, str] = {}
        self.by_guid: dict[UUID, list[Version]] = {}
        # By the subject and the version that they refer to.
        self.referents: dict[tuple[str, int], list[Version]] = {}
        # Keys of other bytes than ours that have a value. Compaction keeps them beside ours, so a deletion removes them,
        # too: otherwise what was deleted would come back once compaction has dropped our null.
        self.foreign_keys: dict[Key, set[bytes]] = {}
        # The highest ids as the last NOOP record has them, so that they outlive the schemas.
        self.kept_highest_ids: dict[str, int] = {}
        self.named_contexts: set[str] = set()

    # ── fold ──

    def apply(
        self,
        key: Key,
        value: SchemaValue | Json | None,
        *,
        raw_key: bytes,
        timestamp_ms: int = -1,
        offset: int = -1,
    ) -> None:
        """Apply a record. Raises ``Unreadable`` for a value that lacks something; nothing has changed then."""
        if isinstance(value, SchemaValue):
            self._put(Name.parse(key.subject), key.version, value, timestamp_ms, offset)
        else:
            self._apply_other(key, value)
        if raw_key != key.encoded():
            self._note_foreign(key, raw_key, is_null=value is None)

    def _apply_other(self, key: Key, value: Json | None) -> None:
        name = Name.parse(key.subject)
        if key.type == SCHEMA:
            self._remove(name.qualified, key.version)
        elif key.type == CONFIG:
            _set(self.configs, name.qualified, value or None)
        elif key.type == MODE:
            _set(self.modes, name.qualified, None if value is None else read_mode(value))
        elif key.type == DELETE_SUBJECT:
            if value is not None:
                self._delete_up_to(name.qualified, read_deleted_up_to(value))
        elif key.type == CLEAR_SUBJECT:
            for version in self.soft_deleted(name):
                self._remove(version.name.qualified, version.number)
        elif key.type == CONTEXT:
            (self.named_contexts.discard if value is None else self.named_contexts.add)(key.subject)
        else:
            self.kept_highest_ids = read_highest_ids(value)
            for context, highest_id in self.kept_highest_ids.items():
                self._note_id(context, highest_id)

    def _put(self, name: Name, number: int, value: SchemaValue, timestamp_ms: int, offset: int) -> None:
        qualified = name.qualified
        subject = self.subjects.get(qualified)
        if subject is None:
            subject = self.subjects[qualified] = Subject(name)
            insort(self.names, qualified)
        known = subject.versions.get(number)
        if known is not None and known.id == value.id and known.content.is_same(value.content):
            known.is_deleted = value.is_deleted
            known.timestamp_ms, known.offset = timestamp_ms, offset
            return
        if known is not None:
            self._unlink(known)
        version = Version(subject.name, number, value, timestamp_ms, offset)
        twin = self.by_guid.get(value.content.guid)
        if twin is not None and twin[0].content.is_same(value.content):
            version.content = twin[0].content
        subject.put(version)
        context = self._note_id(name.context, version.id)
        _add(context.by_id, version.id, version)
        _add(context.by_likeness, version.content.likeness, version)
        _add(self.by_guid, version.content.guid, version)
        for referred in version.referred():
            _add(self.referents, referred, version)

    def _remove(self, qualified: str, number: int) -> None:
        subject = self.subjects.get(qualified)
        version = None if subject is None else subject.versions.pop(number, None)
        if subject is None or version is None:
            return
        self._unlink(version)
        past_ids = self.contexts[subject.name.context].past_ids
        past_ids[version.content.schema_type, version.content.guid] = version.id
        if len(past_ids) > _PAST_MAX:
            del past_ids[next(iter(past_ids))]
        if not subject.versions:
            del self.subjects[qualified]
            del self.names[bisect_left(self.names, qualified)]

    def _unlink(self, version: Version) -> None:
        context = self.contexts[version.name.context]
        _discard(context.by_id, version.id, version)
        _discard(context.by_likeness, version.content.likeness, version)
        _discard(self.by_guid, version.content.guid, version)
        for referred in version.referred():
            _discard(self.referents, referred, version)

    def _delete_up_to(self, qualified: str, number: int) -> None:
        subject = self.subjects.get(qualified)
        for version in () if subject is None else subject.versions.values():
            if version.number <= number:
                version.is_deleted = True

    def _note_id(self, context: str, schema_id: int) -> Context:
        ids = self.contexts.get(context)
        if ids is None:
            ids = self.contexts[context] = Context()
        ids.highest_id = max(ids.highest_id, schema_id)
        return ids

    def _note_foreign(self, key: Key, raw_key: bytes, *, is_null: bool) -> None:
        if not is_null:
            self.foreign_keys.setdefault(key, set()).add(raw_key)
        elif key in self.foreign_keys:
            self.foreign_keys[key].discard(raw_key)
            if not self.foreign_keys[key]:
                del self.foreign_keys[key]

    # ── questions ──

    def subject(self, name: Name) -> Subject | None:
        """Return a subject that has versions, be they soft-deleted."""
        return self.subjects.get(name.qualified)

    def version(self, qualified: str, number: int) -> Version | None:
        """Return a version, also one that is soft-deleted."""
        subject = self.subjects.get(qualified)
        return None if subject is None else subject.versions.get(number)

    def within(self, scope: Name) -> list[Subject]:
        """Return the subjects of a scope: one, those of a context, or all."""
        if scope.subject:
            subject = self.subject(scope)
            return [] if subject is None else [subject]
        return [subject for subject in self.subjects.values() if scope.includes(subject.name)]

    def soft_deleted(self, scope: Name) -> list[Version]:
        """Return what is soft-deleted within a scope."""
        return [
            version
            for subject in self.within(scope)
            for version in subject.versions.values()
            if version.is_deleted
        ]

    def config(self, name: Name) -> dict[str, object]:
        """Return the configuration in effect: each member from the innermost scope that has it."""
        config: dict[str, object] = {"compatibilityLevel": DEFAULT_LEVEL}
        for scope in reversed(name.scopes):
            config.update(self.configs.get(scope, {}))
        return config

    def mode(self, name: Name) -> str:
        """Return the mode in effect; READONLY_OVERRIDE of an outer scope is stronger than one of an inner scope."""
        modes = [mode for scope in name.scopes if (mode := self.modes.get(scope)) is not None]
        return "READONLY" if "READONLY_OVERRIDE" in modes else next(iter(modes), DEFAULT_MODE)

    def context_names(self) -> list[str]:
        """Return the contexts that have subjects or were named, and the default one, sorted."""
        used = {name for name, context in self.contexts.items() if context.by_id}
        return sorted({DEFAULT_CONTEXT, *used, *self.named_contexts})


def _set(values: dict[str, _V], name: str, value: _V | None) -> None:
    if value is None:
        values.pop(name, None)
    else:
        values[name] = value


def _add(index: dict[_K, list[Version]], key: _K, version: Version) -> None:
    index.setdefault(key, []).append(version)


def _discard(index: dict[_K, list[Version]], key: _K, version: Version) -> None:
    versions = index[key]
    versions.remove(version)
    if not versions:
        del index[key]
