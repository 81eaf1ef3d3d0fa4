"""Decides about deletions, configurations, modes and contexts: the state and a request, and the records to append.

Pure functions; what a client may not do they refuse. ``registrations`` decides about schemas.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, cast

from .definitions import DEFAULT_LEVEL, DEFAULT_MODE, LEVELS, MODES, VERSION_MAX, Json
from .errors import (
    ConfigNotFound,
    ContextNotEmpty,
    InvalidLevel,
    InvalidMode,
    InvalidVersion,
    ModeNotFound,
    NotPermitted,
    ReferenceExists,
    SubjectNotFound,
    SubjectNotSoftDeleted,
    SubjectSoftDeleted,
    VersionNotFound,
    VersionNotSoftDeleted,
    VersionSoftDeleted,
)
from .names import DEFAULT_CONTEXT, GLOBAL_CONTEXT, Name
from .rules import check_rules, rules_of
from .state import State, Subject, Version
from .topic_format import (
    CONFIG,
    CONTEXT,
    MODE,
    SCHEMA,
    Key,
    Record,
    SchemaValue,
    delete_subject_record,
    highest_ids_record,
    object_record,
    schema_record,
)

_LEVEL = "compatibilityLevel"
_POLICIES = ("STRICT", "LENIENT", "LOGICAL")


class SubjectDeletion(NamedTuple):
    """The versions that a deletion deletes."""

    numbers: list[int]
    records: list[Record]


class VersionDeletion(NamedTuple):
    number: int
    records: list[Record]


class ConfigChange(NamedTuple):
    """A configuration: as it is after a change, or as it was before a deletion."""

    config: Json
    records: list[Record]


class ModeChange(NamedTuple):
    """A mode: as it is after a change, or as it was before a deletion."""

    mode: str
    records: list[Record]


class ContextDeletion(NamedTuple):
    records: list[Record]


# ── versions ──


def version_number(version: int | str) -> int | None:
    """Return the number that a client wrote, None for the latest. Raises ``InvalidVersion``."""
    text = str(version)
    if text.lower() == "latest" or text == "-1":
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and 1 <= int(text) <= VERSION_MAX):
        raise InvalidVersion(version)
    return int(text)


def visible(state: State, name: Name, *, deleted: bool) -> list[Version]:
    """Return the versions of a subject that a client sees, ascending. Raises ``SubjectNotFound`` if there is none."""
    subject = state.subject(name)
    versions = [] if subject is None else list(subject.versions.values()) if deleted else subject.live()
    if not versions:
        raise SubjectNotFound(name.qualified)
    return versions


def version_of(state: State, name: Name, number: int | None, *, deleted: bool) -> Version:
    """Return a version, None for the latest. Raises ``SubjectNotFound``, ``VersionNotFound``."""
    versions = visible(state, name, deleted=deleted)
    if number is None:
        return versions[-1]
    for version in versions:
        if version.number == number:
            return version
    raise VersionNotFound(number)


def referring_ids(state: State, version: Version, *, deleted: bool) -> list[int]:
    """Return the ids of the schemas that refer to a version."""
    referents = state.referents.get((version.name.qualified, version.number), ())
    return sorted({referent.id for referent in referents if deleted or not referent.is_deleted})


# ── deletions ──


def delete_version(state: State, name: Name, number: int | None, *, permanent: bool) -> VersionDeletion:
    """Decide about the deletion of a version, None for the latest. Raises as ``SchemaRegistry.delete_version``."""
    _check_writable(state, name)
    version = version_of(state, name, number, deleted=permanent or number is not None)
    if permanent and not version.is_deleted:
        raise VersionNotSoftDeleted(name.qualified, version.number)
    if not permanent and version.is_deleted:
        raise VersionSoftDeleted(name.qualified, version.number)
    _check_referents(version, state.referents.get((name.qualified, version.number), ()))
    if permanent:
        return VersionDeletion(version.number, _permanently(state, name, [version]))
    value = SchemaValue(version.id, version.content, True)
    return VersionDeletion(version.number, [schema_record(name.qualified, version.number, value)])


def delete_subject(state: State, name: Name, *, permanent: bool) -> SubjectDeletion:
    """Decide about the deletion of all versions of a subject. Raises as ``SchemaRegistry.delete_subject``."""
    _check_writable(state, name)
    everything = visible(state, name, deleted=True)
    live = [version for version in everything if not version.is_deleted]
    if permanent and live:
        raise SubjectNotSoftDeleted(name.qualified)
    if not permanent and not live:
        raise SubjectSoftDeleted(name.qualified)
    versions = everything if permanent else live
    for version in versions:
        referents = state.referents.get((name.qualified, version.number), ())
        _check_referents(version, [referent for referent in referents if referent.name != name])
    records = (
        _permanently(state, name, versions)
        if permanent
        else [delete_subject_record(name.qualified, versions[-1].number)]
    )
    return SubjectDeletion([version.number for version in versions], records)


def _check_referents(version: Version, referents: Iterable[Version]) -> None:
    """Refuse to delete what others refer to: the soft-deleted ones, too, because they stay readable."""
    if ids := sorted({referent.id for referent in referents}):
        raise ReferenceExists(version.name.qualified, version.number, ids)


def _permanently(state: State, name: Name, versions: list[Version]) -> list[Record]:
    """Return the records that delete versions for good, with what belongs to a subject that ends with them."""
    records = [
        record for version in versions for record in nulls(state, Key(SCHEMA, name.qualified, version.number))
    ]
    subject = cast("Subject", state.subject(name))
    if len(versions) == len(subject.versions):
        records += _scope_nulls(state, name.qualified)
    return with_highest_ids(state, records, (name.context,))


def _scope_nulls(state: State, scope: str) -> list[Record]:
    records: list[Record] = []
    if scope in state.configs:
        records += nulls(state, Key(CONFIG, scope))
    if scope in state.modes:
        records += nulls(state, Key(MODE, scope))
    return records


def nulls(state: State, key: Key) -> list[Record]:
    """Return the records that remove a key in every form that the topic has of it."""
    forms = sorted(state.foreign_keys.get(key, ()))
    if key.type != CONTEXT:
        forms.append(key.encoded())
    return [Record(form, None) for form in forms]


def with_highest_ids(state: State, records: list[Record], contexts: Iterable[str] = ()) -> list[Record]:
    """Return ``records`` with one that keeps the highest ids, if no other record has them any more.

    No id is given twice, not even if compaction has removed the schema that had it. ``records`` may remove schemas of
    ``contexts``.
    """
    wanted = {name: ids.highest_id for name, ids in state.contexts.items() if ids.highest_id not in ids.by_id}
    wanted |= {name: state.contexts[name].highest_id for name in contexts}
    kept = state.kept_highest_ids
    if all(kept.get(name, 0) >= highest_id for name, highest_id in wanted.items()):
        return records
    # First, in case that there are more records than are appended at once.
    return [highest_ids_record({**kept, **wanted}), *records]


def _check_writable(state: State, name: Name) -> None:
    mode = state.mode(name)
    if mode.startswith("READONLY"):
        raise NotPermitted(
            f"'{name.qualified or DEFAULT_CONTEXT}' is in mode {mode}; nothing in it can be changed"
        )


# ── configuration ──


def config(state: State, scope: Name, *, default_to_global: bool) -> Json:
    """Return a configuration. Raises ``ConfigNotFound``."""
    own = state.configs.get(scope.qualified)
    if default_to_global:
        return state.config(scope)
    if own is None and not scope.qualified:
        return {_LEVEL: DEFAULT_LEVEL}
    if own is None:
        raise ConfigNotFound(scope.qualified)
    return own if scope.qualified or _LEVEL in own else {_LEVEL: DEFAULT_LEVEL, **own}


def set_config(state: State, scope: Name, changes: Json) -> ConfigChange:
    """Decide about a change of a configuration. Raises ``InvalidLevel``, ``InvalidRules``, ``NotPermitted``."""
    changes = dict(changes)
    for name, valid in ((_LEVEL, LEVELS), ("compatibilityPolicy", _POLICIES)):
        if changes.get(name) is not None:
            changes[name] = str(changes[name]).upper()
            if changes[name] not in valid:
                raise InvalidLevel
    for name in ("defaultRuleSet", "overrideRuleSet"):
        check_rules(changes.get(name))
    _check_writable(state, scope)
    merged = {**state.configs.get(scope.qualified, {}), **changes}
    value = {name: member for name, member in merged.items() if member is not None}
    key = Key(CONFIG, scope.qualified)
    records = [object_record(key, value)] if value else nulls(state, key)
    return ConfigChange(changes, with_highest_ids(state, records))


def delete_config(state: State, scope: Name) -> ConfigChange:
    """Decide about the removal of a configuration. Raises ``SubjectNotFound``, ``NotPermitted``."""
    _check_writable(state, scope)
    if scope.qualified and scope.qualified not in state.configs:
        raise SubjectNotFound(scope.qualified)
    before = config(state, scope, default_to_global=False)
    is_set = scope.qualified in state.configs
    return ConfigChange(before, nulls(state, Key(CONFIG, scope.qualified)) if is_set else [])


# ── mode ──


def mode(state: State, scope: Name, *, default_to_global: bool) -> str:
    """Return a mode. Raises ``ModeNotFound``."""
    if default_to_global or not scope.qualified:
        return state.mode(scope)
    own = state.modes.get(scope.qualified)
    if own is None:
        raise ModeNotFound(scope.qualified)
    return own


def set_mode(state: State, scope: Name, mode: str, *, force: bool) -> ModeChange:
    """Decide about a mode; IMPORT deletes what is soft-deleted in its scope. Raises ``InvalidMode``, ``NotPermitted``."""
    mode = mode.upper()
    if mode not in MODES:
        raise InvalidMode
    if mode == "FORWARD" and scope != Name(GLOBAL_CONTEXT, ""):
        raise InvalidMode("the mode FORWARD is for all contexts together only: set it on :.__GLOBAL:")
    records = [object_record(Key(MODE, scope.qualified), {"mode": mode})]
    if mode == "IMPORT" and state.mode(scope) != mode and not force:
        if any(subject.live() for subject in state.within(scope)):
            raise NotPermitted(
                "schemas are imported where there are none yet; delete them, or set the mode with force"
            )
        contexts: set[str] = set()
        for version in state.soft_deleted(scope):
            records += nulls(state, Key(SCHEMA, version.name.qualified, version.number))
            contexts.add(version.name.context)
        records = with_highest_ids(state, records, contexts)
    return ModeChange(mode, records)


def delete_mode(state: State, scope: Name, *, recursive: bool) -> ModeChange:
    """Decide about the removal of a mode. Raises ``SubjectNotFound``."""
    below = [
        name
        for name in state.modes
        if recursive and name != scope.qualified and scope.includes(Name.parse(name))
    ]
    before = state.modes.get(scope.qualified)
    if before is None and scope.qualified and not below:
        raise SubjectNotFound(scope.qualified)
    names = below if before is None else [scope.qualified, *below]
    records = [record for name in names for record in nulls(state, Key(MODE, name))]
    return ModeChange(before or DEFAULT_MODE, records)


# ── contexts ──


def delete_context(state: State, context: str) -> ContextDeletion:
    """Decide about the deletion of a context. Raises ``ContextNotEmpty``, ``NotPermitted``."""
    name = Name.parse(context if context.startswith(":") else f":{context}:")
    if any(True for _ in state.within(Name(name.context, ""))):
        raise ContextNotEmpty(name.context)
    if name.context == DEFAULT_CONTEXT:
        raise NotPermitted("the default context cannot be deleted")
    scope = Name(name.context, "").qualified
    return ContextDeletion([*_scope_nulls(state, scope), *nulls(state, Key(CONTEXT, name.context))])


def has_properties(version: Version, properties: Mapping[str, str]) -> bool:
    """Return whether the metadata of a version has all these properties."""
    own = (version.content.metadata or {}).get("properties")
    return isinstance(own, dict) and all(
        cast("dict[str, object]", own).get(name) == value for name, value in properties.items()
    )


def has_rule(version: Version, rule_type: str) -> bool:
    """Return whether a version has a rule of this type."""
    return any(rule.get("type") == rule_type for rule in rules_of(version.content.rule_set))
