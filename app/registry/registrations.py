"""Decides about a schema that a client sends: whether it is known, fits those before it, and which id and version it gets.

Pure functions over the state. What takes long, to parse stored schemas and to compare them, they do not do: they return
``Missing``, and are asked again once that was done, of the state as it is then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, cast

from stele.schemas.definitions import Reference

from .contents import Content, digest
from .decisions import nulls, with_highest_ids
from .definitions import DEFAULT_LEVEL, LEVELS, VERSION_MAX, Json, Rule
from .errors import (
    IdMismatch,
    IncompatibleSchema,
    InvalidSchemaText,
    NotPermitted,
    SchemaNotFound,
    StoreFailed,
    SubjectNotFound,
    VersionNotFound,
)
from .names import Name
from .rules import check_rules, merged
from .state import Context, State, Subject, Version
from .topic_format import SCHEMA, Key, Record, SchemaValue, schema_record

_LATEST = -1
# A history is compared in parts, because the first version that a schema does not fit ends it.
_COMPARED_AT_ONCE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A schema that was parsed: ``content`` has its canonical text, or the normalized one if ``is_normalized``.

    Its digests are those of both texts of the schema that was sent. ``metadata`` and ``rule_set`` are not in it: None
    lets the last version and the configuration decide, and an empty object says that there are none.
    """

    name: Name
    content: Content
    is_normalized: bool
    metadata: Json | None = None
    rule_set: Json | None = None
    id: int | None = None
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Comparisons:
    """What was found out about a proposal: by rule why it does not fit stored schemas; empty if it does."""

    problems: dict[tuple[Content, Rule], tuple[str, ...]] = field(
        default_factory=dict[tuple[Content, Rule], tuple[str, ...]]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """Do this and ask again: find the digests of stored schemas, and compare the proposal with them by rules."""

    digests: Sequence[Version] = ()
    comparisons: Sequence[tuple[Version, Rule]] = ()


class Registration(NamedTuple):
    """The version under which a schema is registered once ``records`` are in the topic; none if it is already."""

    number: int
    records: list[Record]


def resolved_references(
    state: State, name: Name, references: Iterable[Reference], *, is_normalized: bool
) -> tuple[Reference, ...]:
    """Return references with a number in the place of the latest version. Raises ``InvalidSchemaText``."""
    resolved: list[Reference] = []
    for reference in references:
        subject = state.subject(name.near(reference.subject))
        if reference.version == _LATEST and subject is not None:
            live = subject.live()
            reference = reference._replace(version=live[-1].number if live else subject.last_number)
        resolved.append(reference)
    _check_references(state, name, resolved)
    return tuple(sorted(set(resolved))) if is_normalized else tuple(resolved)


def _check_references(state: State, name: Name, references: Iterable[Reference]) -> None:
    for reference in references:
        if state.version(name.near(reference.subject).qualified, reference.version) is None:
            raise InvalidSchemaText(
                f"the reference '{reference.name}' is to version {reference.version} of subject "
                f"'{reference.subject}', which does not exist; register that first"
            )


def register(
    state: State, proposal: Proposal, comparisons: Comparisons, *, force: bool = False
) -> Registration | Missing:
    """Decide about a registration.

    Raises ``IncompatibleSchema``, ``InvalidSchemaText``, ``InvalidRules``, ``NotPermitted``, ``IdMismatch``.
    """
    name, subject = proposal.name, state.subject(proposal.name)
    mode = state.mode(name)
    is_import = mode in ("IMPORT", "FORWARD")
    content = proposed_content(state, proposal, is_verbatim=is_import)
    known = _known(state, proposal, content, [] if subject is None else subject.live())
    if isinstance(known, Missing):
        return known
    if known is not None:
        if proposal.id not in (None, known.id):
            raise IdMismatch(known.id, proposal.id)
        if not is_import or proposal.version in (None, known.number):
            return Registration(known.number, [])
    _check_mode(proposal, mode, is_import=is_import)
    # They may have been deleted since the proposal was made.
    _check_references(state, name, content.references)
    check_rules(content.rule_set)
    number = _number(proposal, subject, is_import=is_import)
    if not is_import and not force:
        problems = incompatibilities(state, proposal, content, comparisons)
        if isinstance(problems, Missing):
            return problems
        if problems:
            raise IncompatibleSchema(name.qualified, problems)
    context = state.contexts.get(name.context) or Context()
    if is_import:
        found = _imported(proposal, content, context)
    else:
        found = _id(state, proposal, content, context, subject)
    if isinstance(found, Missing):
        return found
    schema_id, content = found
    is_overwrite = subject is not None and number in subject.versions
    if subject is not None and is_overwrite:
        _check_overwrite(subject.versions[number], schema_id, content)
    if schema_id > VERSION_MAX:
        raise StoreFailed(f"all ids of the context '{name.context}' were given")
    records = [schema_record(name.qualified, number, SchemaValue(schema_id, content, False))]
    records += _replaced(state, subject, schema_id, number)
    return Registration(number, with_highest_ids(state, records, (name.context,) if is_overwrite else ()))


def look_up(state: State, proposal: Proposal, *, deleted: bool) -> Version | Missing:
    """Return the newest version of a subject that has this schema.

    A schema that was registered in its normalized form is found by its other forms, too.

    Raises ``SubjectNotFound``, ``SchemaNotFound``.
    """
    subject = state.subject(proposal.name)
    versions = [] if subject is None else list(subject.versions.values()) if deleted else subject.live()
    if not versions:
        raise SubjectNotFound(proposal.name.qualified)
    content = proposed_content(state, proposal, is_verbatim=True)
    known = _known(state, proposal, content, versions)
    if known is not None:
        return known
    for version in reversed(versions):
        if (
            digest(version.content.text) == proposal.content.normalized
            and _is_like(proposal, version.content)
            and _has_rules(proposal, content, version.content)
        ):
            return version
    raise SchemaNotFound


def check_version(
    state: State, proposal: Proposal, number: int | None, comparisons: Comparisons
) -> list[str] | Missing:
    """Return why a schema does not fit one version of its subject; None is the latest, if there is one.

    Raises ``VersionNotFound``.
    """
    subject = state.subject(proposal.name)
    live = [] if subject is None else subject.live()
    if number is None and not live:
        return []
    version = live[-1] if number is None else next((one for one in live if one.number == number), None)
    if version is None:
        raise VersionNotFound(cast("int", number))
    return _problems([version], _pairwise(state.config(proposal.name)), comparisons)


def incompatibilities(
    state: State, proposal: Proposal, content: Content, comparisons: Comparisons
) -> list[str] | Missing:
    """Return why a schema cannot be the next version of its subject, newest version first."""
    config = state.config(proposal.name)
    subject = state.subject(proposal.name)
    versions = [] if subject is None else subject.live()[::-1]
    group = config.get("compatibilityGroup")
    if isinstance(group, str):
        wanted = _property(content, group)
        versions = [version for version in versions if _property(version.content, group) == wanted]
    is_transitive = _level(config).endswith("_TRANSITIVE")
    return _problems(versions if is_transitive else versions[:1], _pairwise(config), comparisons)


def proposed_content(state: State, proposal: Proposal, *, is_verbatim: bool) -> Content:
    """Return what would be registered, with metadata and rules as the last version and the configuration say."""
    metadata, rule_set = proposal.metadata, proposal.rule_set
    if not is_verbatim:
        subject = state.subject(proposal.name)
        live = [] if subject is None else subject.live()
        config = state.config(proposal.name)
        last = live[-1].content if live else None
        if metadata is None and last is not None:
            metadata = last.metadata
        if rule_set is None and last is not None:
            rule_set = last.rule_set
        metadata = merged(config.get("defaultMetadata"), metadata, config.get("overrideMetadata"))
        rule_set = merged(config.get("defaultRuleSet"), rule_set, config.get("overrideRuleSet"))
    return proposal.content.with_rules(metadata, rule_set)


# ── equality ──


def _known(
    state: State, proposal: Proposal, content: Content, versions: Sequence[Version]
) -> Version | Missing | None:
    """Return the newest of ``versions`` that has this schema, by preference in the same text."""
    return _equal(
        proposal,
        [
            version
            for version in reversed(versions)
            if _has_rules(proposal, content, version.content) and _owns_id(state, version)
        ],
    )


def _equal(proposal: Proposal, versions: Sequence[Version]) -> Version | Missing | None:
    """Return the first version with the same text, otherwise the first one that is equal.

    The answer does not depend on which digests are known already, so that all brokers give the same.
    """
    versions = [version for version in versions if _is_like(proposal, version.content)]
    for version in versions:
        if version.content.text == proposal.content.text:
            return version
    unknown = [version for version in versions if _digest(proposal, version.content) is None]
    if unknown:
        return Missing(digests=unknown)
    wanted = _digest(proposal, proposal.content)
    return next((version for version in versions if _digest(proposal, version.content) == wanted), None)


def _is_like(proposal: Proposal, stored: Content) -> bool:
    content = proposal.content
    return stored.schema_type == content.schema_type and stored.references == content.references


def _digest(proposal: Proposal, stored: Content) -> bytes | None:
    return stored.normalized if proposal.is_normalized else stored.canonical


def _has_rules(proposal: Proposal, content: Content, stored: Content) -> bool:
    """Return whether metadata and rules are those that were sent; what was not sent may be anything."""
    return (proposal.metadata is None or stored.metadata == content.metadata) and (
        proposal.rule_set is None or stored.rule_set == content.rule_set
    )


def _has_same_rules(stored: Content, content: Content) -> bool:
    return (stored.metadata, stored.rule_set) == (content.metadata, content.rule_set)


def _owns_id(state: State, version: Version) -> bool:
    """Return whether the id of a version leads to its schema: a topic may have given it to two."""
    owner = state.contexts[version.name.context].content_of(version.id)
    return owner is not None and owner.is_same(version.content)


# ── id and version ──


def _check_mode(proposal: Proposal, mode: str, *, is_import: bool) -> None:
    name = proposal.name.qualified
    if mode.startswith("READONLY"):
        raise NotPermitted(f"subject '{name}' is in mode {mode}; it accepts no new schemas")
    if is_import and proposal.id is None:
        raise NotPermitted(f"subject '{name}' is in mode {mode}; a schema needs an id")
    if not is_import and proposal.id is not None:
        raise NotPermitted(
            f"subject '{name}' is in mode {mode}; a schema cannot bring its id, set mode IMPORT first"
        )


def _number(proposal: Proposal, subject: Subject | None, *, is_import: bool) -> int:
    """Return the number of the new version."""
    following = (0 if subject is None else subject.last_number) + 1
    if proposal.version is None:
        return following
    if proposal.version != following and not is_import:
        raise InvalidSchemaText(f"the version is {proposal.version}; the next one is {following}")
    return proposal.version


def _id(
    state: State, proposal: Proposal, content: Content, context: Context, subject: Subject | None
) -> tuple[int, Content] | Missing:
    """Return the id for a new version, and the content that has it: another subject may have it already.

    A text that is equal in another form gives way to the one that has the id.
    """
    versions = [
        version
        for schema_id in context.likenesses(content.likeness)
        for version in context.by_id[schema_id][:1]
    ]
    # What was soft-deleted is compared in whatever form.
    versions += [] if subject is None else subject.versions.values()
    known = _equal(
        proposal,
        [
            version
            for version in versions
            if _has_same_rules(version.content, content) and _owns_id(state, version)
        ],
    )
    if isinstance(known, Missing):
        return known
    if known is not None:
        return known.id, known.content
    past_id = context.past_id(content)
    return (context.highest_id + 1 if past_id is None else past_id), content


def _imported(proposal: Proposal, content: Content, context: Context) -> tuple[int, Content] | Missing:
    """Return the id that an imported schema brings. Raises ``NotPermitted`` if another schema has it."""
    schema_id = cast("int", proposal.id)
    owner = context.content_of(schema_id)
    if owner is None or owner.is_same(content):
        return schema_id, content
    known = _equal(proposal, context.by_id[schema_id][:1])
    if isinstance(known, Missing):
        return known
    if known is None or not _has_same_rules(owner, content):
        raise NotPermitted(f"the id {schema_id} belongs to another schema, which cannot be replaced")
    return schema_id, owner


def _check_overwrite(version: Version, schema_id: int, content: Content) -> None:
    if not version.is_deleted and (version.id != schema_id or not version.content.is_same(content)):
        raise NotPermitted(
            f"version {version.number} of subject '{version.name.qualified}' is another schema; delete it first"
        )


def _replaced(state: State, subject: Subject | None, schema_id: int, number: int) -> Iterator[Record]:
    """Yield the nulls that remove soft-deleted versions of the same id, to which nobody refers."""
    if subject is None:
        return
    for version in subject.versions.values():
        place = subject.name.qualified, version.number
        if (
            version.is_deleted
            and version.id == schema_id
            and version.number != number
            and place not in state.referents
        ):
            yield from nulls(state, Key(SCHEMA, *place))


# ── compatibility ──


def _problems(versions: Iterable[Version], rule: Rule, comparisons: Comparisons) -> list[str] | Missing:
    """Return why a schema does not fit the first of ``versions`` that it does not fit."""
    if rule.level == "NONE":
        return []
    missing: list[tuple[Version, Rule]] = []
    for version in versions:
        found = comparisons.problems.get((version.content, rule))
        if found is None:
            missing.append((version, rule))
            if len(missing) == _COMPARED_AT_ONCE:
                break
        elif found and not missing:
            return [f"version {version.number}: {problem}" for problem in found]
    return Missing(comparisons=missing) if missing else []


def _level(config: Mapping[str, object]) -> str:
    level = str(config.get("compatibilityLevel")).upper()
    return level if level in LEVELS else DEFAULT_LEVEL


def _pairwise(config: Mapping[str, object]) -> Rule:
    """Return how one pair of schemas is compared; over how many versions it goes is another matter."""
    return Rule(_level(config).removesuffix("_TRANSITIVE"), config.get("compatibilityPolicy") == "LENIENT")


def _property(content: Content, name: str) -> object:
    properties = (content.metadata or {}).get("properties")
    return cast("dict[str, object]", properties).get(name) if isinstance(properties, dict) else None
