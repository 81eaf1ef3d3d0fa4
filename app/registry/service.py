"""The schema registry of one broker, as a listener calls it.

The topic ``_schemas`` is the store, and the registry a fold over it. A write refreshes the fold to the end of the topic,
decides, and appends on condition that the end is still the one that was folded; whoever loses decides again. A read is
answered from memory, after a look whether another broker has appended something.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, cast
from uuid import UUID

from stele.schemas.definitions import InvalidSchema, ParsedSchema, SchemaType

from ..broker.broker import Broker
from ..errors import BrokerClosing
from ..work_budget import SMALL_VISIT, visited
from . import decisions, registrations, types
from .contents import Content
from .contracts import SchemaContracts
from .decisions import version_number, version_of, visible
from .definitions import (
    TYPES,
    VERSION_MAX,
    Compatibility,
    ContextId,
    Json,
    NewSchema,
    RegisteredSchema,
    SubjectVersion,
)
from .errors import (
    InvalidRules,
    InvalidSchemaText,
    RegistryError,
    SchemaNotFound,
    StoreTimedOut,
)
from .names import DEFAULT_CONTEXT, Name, matcher, new_subject, scope
from .parsed import ParsedSchemas, digests
from .registrations import Comparisons, Missing, Proposal, Registration
from .state import State, Version
from .store import SchemasTopic
from .topic_format import Record, encoded
from .values import SchemaValues

logger = logging.getLogger(__name__)

# Versions of a subject that are parsed to find one by what its references resolve to.
_RESOLVED_MAX = 16
# Versions in one answer.
_SCHEMAS_MAX = 1000
# How long a write tries to be the next one in the topic.
_WRITE_S = 30.0

_T = TypeVar("_T")


class _Decision(Protocol):
    @property
    def records(self) -> list[Record]: ...


_D = TypeVar("_D", bound=_Decision)


class SchemaRegistry:
    """Subjects, versions and their rules; every method may raise ``StoreFailed`` and ``BrokerClosing``.

    Names of subjects are as in requests, with the context in front (``:.ctx:orders-value``); an unqualified one is in the
    default context. ``version`` is a number, its text, ``latest`` in any case, or -1. ``prefix`` begins the names of
    subjects that are meant: "" those of the default context, ``:*:`` those of all contexts (the default of the API).
    ``offset`` and ``limit`` cut lists as slices do; ``limit`` None or negative: no limit. ``deleted`` includes what is
    soft-deleted.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._topic = SchemasTopic(broker)
        self._parsed = ParsedSchemas()
        # What topics ask of their records.
        self.contracts = SchemaContracts(self._topic, self._parsed, self._aliased)
        # Keys and values as JSON.
        self.values = SchemaValues(self._topic, self._parsed, self._aliased, self.contracts.process)
        # Writers of this broker take turns, so that they do not make each other decide again.
        self._writing = asyncio.Lock()
        self._start: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read the topic, if it exists, in turns of the event loop; requests may come meanwhile and wait for it."""
        self._start = asyncio.create_task(self._read_topic())

    async def close(self) -> None:
        """End what runs in the background; writes that were answered are synced."""
        if self._start is not None:
            self._start.cancel()
            await asyncio.gather(self._start, return_exceptions=True)
        self.contracts.process.close()

    @property
    def cluster_id(self) -> str:
        """The id of the cluster, for ``/v1/metadata/id``."""
        return self._broker.cluster_id

    @property
    def types(self) -> tuple[SchemaType, ...]:
        """The types of schemas that it knows."""
        return TYPES

    # ── register and look up ──

    async def register(
        self, subject: str, schema: NewSchema, *, normalize: bool | None = None, force: bool = False
    ) -> RegisteredSchema:
        """Register a schema under a subject, unless it is there already; it is synced when this returns.

        ``normalize`` registers the normalized form; so does the configuration of the subject if it says so. ``force`` skips
        the check of compatibility.

        Raises:
            IncompatibleSchema, InvalidSchemaText, NotPermitted, IdMismatch, InvalidSubject, SchemaTooLarge,
            InvalidRules: nothing was registered.
            StoreTimedOut: it may have been; register it again.
        """
        await self._topic.refresh()
        name = self._aliased(new_subject(subject))
        proposal, parsed = await self._propose(name, schema, is_normalized=bool(normalize))
        comparisons = Comparisons()

        async def decide() -> Registration:
            return await self._settled(
                lambda state: registrations.register(state, proposal, comparisons, force=force),
                parsed,
                comparisons,
            )

        registration = await decide()
        if registration.records:
            registration = await self._write(decide)
        version = version_of(self._topic.state, name, registration.number, deleted=True)
        return await self._shown(version)

    async def look_up(
        self,
        subject: str,
        schema: NewSchema,
        *,
        normalize: bool | None = None,
        deleted: bool = False,
        text_format: str = "",
    ) -> RegisteredSchema:
        """Return the version of a subject that has this schema, the newest if there are several.

        Without references it is also one of Avro whose references define the rest: serializers of classes know none.

        Raises ``SubjectNotFound``, ``SchemaNotFound``, ``InvalidSchemaText``.
        """
        state = await self._topic.refresh()
        name = self._aliased(Name.parse(subject))
        visible(state, name, deleted=deleted)
        proposal, parsed = await self._propose(
            name, schema, is_normalized=bool(normalize), is_registered=True
        )
        comparisons = Comparisons()
        try:
            version = await self._settled(
                lambda state: registrations.look_up(state, proposal, deleted=deleted), parsed, comparisons
            )
        except SchemaNotFound:
            if parsed.type != "AVRO" or schema.references or schema.metadata or schema.rule_set:
                raise
            version = await self._resolving_to(parsed.canonical, visible(state, name, deleted=deleted))
        return await self._shown(version, text_format)

    async def _resolving_to(self, text: str, versions: Sequence[Version]) -> Version:
        """Return the newest version that has this text with its references in it. Raises ``SchemaNotFound``."""
        for version in [version for version in versions if version.content.references][-_RESOLVED_MAX:][::-1]:
            if (await self._shown(version, "resolved")).text == text:
                return version
        raise SchemaNotFound

    async def check_compatibility(
        self,
        subject: str,
        schema: NewSchema,
        *,
        version: int | str | None = None,
        normalize: bool | None = None,
        verbose: bool = False,
    ) -> Compatibility:
        """Check a schema against one version of a subject, or without ``version`` as registering it would.

        An unknown subject is compatible with everything, if the version is the latest or None. ``messages`` is empty
        unless ``verbose``; then a schema that is not valid is incompatible.

        Raises ``VersionNotFound``, ``InvalidVersion``, ``InvalidSchemaText``.
        """
        number = None if version is None else version_number(version)
        await self._topic.refresh()
        name = self._aliased(Name.parse(subject))
        try:
            proposal, parsed = await self._propose(name, schema, is_normalized=bool(normalize))
        except InvalidSchemaText as error:
            if not verbose:
                raise
            return Compatibility(False, (str(error),))
        comparisons = Comparisons()

        def check(state: State) -> list[str] | Missing:
            if version is not None:
                return registrations.check_version(state, proposal, number, comparisons)
            content = registrations.proposed_content(state, proposal, is_verbatim=False)
            return registrations.incompatibilities(state, proposal, content, comparisons)

        problems = await self._settled(check, parsed, comparisons)
        return Compatibility(not problems, tuple(problems) if verbose else ())

    # ── subjects and versions ──

    async def subjects(
        self,
        *,
        prefix: str = ":*:",
        deleted: bool = False,
        deleted_only: bool = False,
    ) -> list[str]:
        """Return the names of subjects, sorted."""
        state = await self._topic.refresh()
        is_meant = matcher(prefix)
        names: list[str] = []
        async for qualified in visited(list(state.names), SMALL_VISIT):
            subject = state.subjects.get(qualified)
            if subject is None or not is_meant(subject.name):
                continue
            is_live = any(not version.is_deleted for version in reversed(subject.versions.values()))
            if not is_live if deleted_only else is_live or deleted:
                names.append(qualified)
        return names

    async def versions(
        self,
        subject: str,
        *,
        deleted: bool = False,
        deleted_only: bool = False,
        deleted_as_negative: bool = False,
    ) -> list[int]:
        """Return the versions of a subject, ascending.

        Raises ``SubjectNotFound`` if there is none of those that are asked for.
        """
        state = await self._topic.refresh()
        name = self._aliased(Name.parse(subject))
        versions = visible(state, name, deleted=deleted or deleted_only or deleted_as_negative)
        if deleted_only:
            versions = [version for version in versions if version.is_deleted]
        return [
            -version.number if deleted_as_negative and version.is_deleted else version.number
            for version in versions
        ]

    async def version(
        self,
        subject: str,
        version: int | str,
        *,
        deleted: bool = False,
        text_format: str = "",
        reference_format: str = "",
    ) -> RegisteredSchema:
        """Return one version.

        ``text_format`` is ``serialized``, for a descriptor of Protobuf in base64, or ``resolved``, for a schema of Avro
        with all that its references define; others are ignored, and so is ``reference_format`` but for ``qualified``,
        with which subjects of references have their context.

        Raises ``SubjectNotFound``, ``VersionNotFound``, ``InvalidVersion``.
        """
        found = await self._version(subject, version, deleted=deleted)
        return await self._shown(found, text_format, reference_format)

    async def referenced_by(
        self,
        subject: str,
        version: int | str,
        *,
        deleted: bool = False,
    ) -> list[int]:
        """Return the ids of the schemas that refer to a version, sorted. Raises as ``version``."""
        found = await self._version(subject, version, deleted=True)
        return decisions.referring_ids(self._topic.state, found, deleted=deleted)

    async def latest_with_metadata(
        self, subject: str, properties: Mapping[str, str], *, deleted: bool = False, text_format: str = ""
    ) -> RegisteredSchema:
        """Return the newest version whose metadata has all these properties.

        Raises ``SubjectNotFound``, ``SchemaNotFound``.
        """
        state = await self._topic.refresh()
        name = self._aliased(Name.parse(subject))
        for version in reversed(visible(state, name, deleted=deleted)):
            if decisions.has_properties(version, properties):
                return await self._shown(version, text_format)
        raise SchemaNotFound

    async def delete_subject(self, subject: str, *, permanent: bool = False) -> list[int]:
        """Delete all versions of a subject, and return them.

        Raises ``SubjectNotFound``, ``SubjectSoftDeleted``, ``SubjectNotSoftDeleted``, ``ReferenceExists``,
        ``NotPermitted``, ``StoreTimedOut``.
        """
        name = Name.parse(subject)
        deletion = await self._change(
            lambda state: decisions.delete_subject(state, name, permanent=permanent)
        )
        return deletion.numbers

    async def delete_version(self, subject: str, version: int | str, *, permanent: bool = False) -> int:
        """Delete a version, and return it.

        Raises ``SubjectNotFound``, ``VersionNotFound``, ``InvalidVersion``, ``VersionSoftDeleted``,
        ``VersionNotSoftDeleted``, ``ReferenceExists``, ``NotPermitted``, ``StoreTimedOut``.
        """
        name, number = Name.parse(subject), version_number(version)
        deletion = await self._change(
            lambda state: decisions.delete_version(state, name, number, permanent=permanent)
        )
        return deletion.number

    # ── schemas ──

    async def schemas(
        self,
        *,
        prefix: str = ":*:",
        aliases: bool = False,
        deleted: bool = False,
        latest_only: bool = False,
        rule_type: str | None = None,
        offset: int = 0,
        limit: int = _SCHEMAS_MAX,
    ) -> list[RegisteredSchema]:
        """Return versions of subjects, by name and number.

        ``aliases`` adds the versions of subjects whose alias is one of those that the prefix means.
        """
        state = await self._topic.refresh()
        is_meant = matcher(prefix)
        aliased = {
            self._aliased(Name.parse(name)).qualified
            async for name in visited(list(state.configs) if aliases else ())
            if is_meant(Name.parse(name))
        }
        versions: list[Version] = []
        async for qualified in visited(list(state.names), SMALL_VISIT):
            subject = state.subjects.get(qualified)
            if subject is not None and (is_meant(subject.name) or qualified in aliased):
                own = list(subject.versions.values()) if deleted else subject.live()
                versions += own[-1:] if latest_only else own
        if rule_type:
            versions = [
                version async for version in visited(versions) if decisions.has_rule(version, rule_type)
            ]
        return [await self._shown(version) async for version in visited(versions[offset : offset + limit])]

    async def schema_by_id(
        self, schema_id: int, *, subject: str | None = None, text_format: str = "", reference_format: str = ""
    ) -> RegisteredSchema:
        """Return the schema with an id, also one that is soft-deleted; of its versions the first.

        It is looked for in the context of ``subject``; without one in the default context, then in the others.

        Raises ``SchemaNotFound``.
        """
        versions = self._versions_of_id(schema_id, subject)
        if not versions:
            await self._topic.refresh()
            versions = self._versions_of_id(schema_id, subject)
        if not versions:
            raise SchemaNotFound
        name = Name.parse(subject or "").qualified
        content = versions[0].content
        same = [version for version in versions if version.content.is_same(content)]
        best = min(same, key=lambda version: (version.name.qualified != name, version.is_deleted))
        return await self._shown(best, text_format, reference_format)

    async def max_id(self, subject: str | None = None) -> int:
        """Return the highest id given in the context of ``subject``; 0 if there is none."""
        state = await self._topic.refresh()
        context = state.contexts.get(Name.parse(subject or "").context)
        return 0 if context is None else context.highest_id

    async def subjects_of_id(
        self,
        schema_id: int,
        *,
        subject: str | None = None,
        deleted: bool = False,
    ) -> list[str]:
        """Return the subjects with a version that has this id. Raises ``SchemaNotFound``."""
        versions = await self._visible_of_id(schema_id, subject, deleted=deleted)
        return sorted({version.name.qualified for version in versions})

    async def versions_of_id(
        self,
        schema_id: int,
        *,
        subject: str | None = None,
        deleted: bool = False,
    ) -> list[SubjectVersion]:
        """Return the versions that have this id. Raises ``SchemaNotFound``."""
        versions = await self._visible_of_id(schema_id, subject, deleted=deleted)
        return sorted(SubjectVersion(version.name.qualified, version.number) for version in versions)

    async def schema_by_guid(self, guid: str, *, text_format: str = "") -> RegisteredSchema:
        """Return the schema with a GUID. Raises ``SchemaNotFound``, also if it is no UUID."""
        return await self._shown((await self._versions_of_guid(guid))[0], text_format)

    async def ids_of_guid(self, guid: str) -> list[ContextId]:
        """Return the ids that the schema with a GUID has, one per context. Raises ``SchemaNotFound``."""
        versions = await self._versions_of_guid(guid)
        return sorted({ContextId(version.name.context, version.id) for version in versions})

    # ── configuration and mode: of all (None), of a context (``:.ctx:``), of a subject ──

    async def config(self, subject: str | None, *, default_to_global: bool = False) -> Json:
        """Return a configuration by the names of the topic (``compatibilityLevel``, ``normalize``, …).

        That of all and, with ``default_to_global``, that in effect for a subject always have ``compatibilityLevel``.

        Raises ``ConfigNotFound``.
        """
        return decisions.config(
            await self._topic.refresh(), scope(subject), default_to_global=default_to_global
        )

    async def set_config(self, subject: str | None, changes: Json) -> Json:
        """Change the named members of a configuration, None removes one; return ``changes`` with the level as stored.

        The level is ``compatibilityLevel`` here as well; its case does not matter.

        Raises ``InvalidLevel``, ``InvalidRules``, ``NotPermitted``, ``InvalidSubject``, ``StoreTimedOut``.
        """
        name = scope(subject)
        try:
            json.dumps(changes, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise InvalidRules(f"the configuration has half of a surrogate pair: {error}") from error
        return (await self._change(lambda state: decisions.set_config(state, name, changes))).config

    async def delete_config(self, subject: str | None) -> Json:
        """Remove a configuration, and return what it was.

        Raises ``SubjectNotFound`` if there is none, ``NotPermitted``, ``StoreTimedOut``.
        """
        name = scope(subject)
        return (await self._change(lambda state: decisions.delete_config(state, name))).config

    async def mode(self, subject: str | None, *, default_to_global: bool = False) -> str:
        """Return a mode. Raises ``ModeNotFound``."""
        return decisions.mode(
            await self._topic.refresh(), scope(subject), default_to_global=default_to_global
        )

    async def set_mode(self, subject: str | None, mode: str, *, force: bool = False) -> str:
        """Set a mode, in any case, and return it.

        ``force`` allows IMPORT where there are subjects.

        Raises ``InvalidMode``, ``NotPermitted``, ``InvalidSubject``, ``StoreTimedOut``.
        """
        name = scope(subject)
        return (await self._change(lambda state: decisions.set_mode(state, name, mode, force=force))).mode

    async def delete_mode(self, subject: str | None, *, recursive: bool = False) -> str:
        """Remove a mode, and return what it was; ``recursive`` removes those below a context, too.

        Raises ``SubjectNotFound`` if there is none, ``StoreTimedOut``.
        """
        name = scope(subject)
        change = await self._change(lambda state: decisions.delete_mode(state, name, recursive=recursive))
        return change.mode

    # ── contexts ──

    async def contexts(self, *, prefix: str = "") -> list[str]:
        """Return the names of contexts, sorted; the default one is "."."""
        names = (await self._topic.refresh()).context_names()
        return [name for name in names if name.startswith(prefix)]

    async def delete_context(self, context: str) -> None:
        """Delete an empty context with its configuration and mode. Raises ``ContextNotEmpty``, ``StoreTimedOut``."""
        await self._change(lambda state: decisions.delete_context(state, context))

    # ── parts ──

    async def _read_topic(self) -> None:
        try:
            await self._topic.refresh()
        except (RegistryError, BrokerClosing) as error:
            # Each request tries again, and reports it.
            logger.warning("the schemas could not be read at the start: %s", error)

    def _aliased(self, name: Name) -> Name:
        """Return the subject for which ``name`` is an alias, or itself."""
        alias = self._topic.state.configs.get(name.qualified, {}).get("alias")
        return name.near(alias) if isinstance(alias, str) and alias else name

    async def _version(self, subject: str, version: int | str, *, deleted: bool) -> Version:
        number = version_number(version)
        state = await self._topic.refresh()
        return version_of(state, self._aliased(Name.parse(subject)), number, deleted=deleted)

    def _versions_of_id(self, schema_id: int, subject: str | None) -> Sequence[Version]:
        state = self._topic.state
        contexts = [Name.parse(subject or "").context]
        if subject is None:
            contexts += [context for context in state.contexts if context != DEFAULT_CONTEXT]
        for context in contexts:
            ids = state.contexts.get(context)
            if ids is not None and schema_id in ids.by_id:
                return ids.by_id[schema_id]
        return ()

    async def _visible_of_id(self, schema_id: int, subject: str | None, *, deleted: bool) -> list[Version]:
        await self._topic.refresh()
        versions = self._versions_of_id(schema_id, subject)
        if not versions:
            raise SchemaNotFound
        return [version for version in versions if deleted or not version.is_deleted]

    async def _versions_of_guid(self, guid: str) -> Sequence[Version]:
        try:
            wanted = UUID(guid)
        except ValueError:
            raise SchemaNotFound from None
        versions = self._topic.state.by_guid.get(wanted) or (await self._topic.refresh()).by_guid.get(wanted)
        if not versions:
            raise SchemaNotFound
        return versions

    async def _shown(
        self, version: Version, text_format: str = "", reference_format: str = ""
    ) -> RegisteredSchema:
        content = version.content
        text: str | None = None
        if types.has_format(content.schema_type, text_format):
            try:
                schema = await self._parsed.of(self._topic.state, version)
            except InvalidSchema:
                # It is shown as it is: its other registry has let it in.
                pass
            else:
                text = await asyncio.to_thread(types.formatted, schema, text_format)
        references = content.references
        if reference_format == "qualified":
            references = tuple(
                reference._replace(subject=version.name.near(reference.subject).qualified)
                for reference in references
            )
        return RegisteredSchema(
            subject=version.name.qualified,
            version=version.number,
            id=version.id,
            guid=str(content.guid),
            schema_type=cast("SchemaType", content.schema_type),
            text=content.text if text is None else text,
            references=references,
            metadata=content.metadata,
            rule_set=content.rule_set,
            is_deleted=version.is_deleted,
            timestamp_ms=version.timestamp_ms,
            offset=version.offset,
        )

    async def _propose(
        self, name: Name, schema: NewSchema, *, is_normalized: bool, is_registered: bool = False
    ) -> tuple[Proposal, ParsedSchema]:
        """Parse a schema that a client sent; one that ``is_registered`` is only looked for.

        Raises ``InvalidSchemaText``.
        """
        state = self._topic.state
        if not schema.text.strip():
            raise InvalidSchemaText("Empty schema")
        schema_type = schema.schema_type.upper()
        is_normalized = is_normalized or state.config(name).get("normalize") is True
        references = registrations.resolved_references(
            state, name, schema.references, is_normalized=is_normalized
        )
        try:
            parsed = await self._parsed.parse(
                state, name, schema_type, schema.text, references, is_registered=is_registered
            )
            content = await asyncio.to_thread(_content, parsed, schema, references, is_normalized)
        except InvalidSchema as error:
            raise InvalidSchemaText(f"Invalid schema of type {schema_type}: {error.reason}") from error
        proposal = Proposal(
            name=name,
            content=content,
            is_normalized=is_normalized,
            metadata=schema.metadata,
            rule_set=schema.rule_set,
            id=_number(schema.id, "id"),
            version=_number(schema.version, "version"),
        )
        return proposal, parsed

    async def _settled(
        self, decide: Callable[[State], _T | Missing], parsed: ParsedSchema, comparisons: Comparisons
    ) -> _T:
        """Return a decision about a schema, after finding out what it needs to know. It is of this turn of the loop."""
        while True:
            outcome = decide(self._topic.state)
            if not isinstance(outcome, Missing):
                return outcome
            await self._parsed.find(self._topic.state, outcome, parsed, comparisons)

    async def _change(self, decide: Callable[[State], _D]) -> _D:
        async def decided() -> _D:
            return decide(self._topic.state)

        return await self._write(decided)

    async def _write(self, decide: Callable[[], Awaitable[_D]]) -> _D:
        """Decide and append until the append was the next one after what the decision is about."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + _WRITE_S
        async with self._writing:
            while True:
                await self._topic.refresh()
                decision = await decide()
                if not decision.records:
                    return decision
                if await self._topic.append(decision.records):
                    await self._topic.refresh()
                    return decision
                if loop.time() > deadline_s:
                    raise StoreTimedOut(f"others wrote to the topic for {_WRITE_S:.0f} s without a pause")


def _content(
    parsed: ParsedSchema, schema: NewSchema, references: Sequence[Any], is_normalized: bool
) -> Content:
    """Return what is registered for a schema; in a thread, because its text may be large."""
    try:
        json.dumps((schema.text, references, schema.metadata, schema.rule_set), ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise InvalidSchema(f"it has half of a surrogate pair, which is no character: {error}") from error
    text = parsed.normalized() if is_normalized else parsed.canonical
    content = Content(schema_type=parsed.type, text=text, references=tuple(references))
    content.normalized, content.canonical = digests(parsed)
    content.is_canonical = text == parsed.canonical
    content.quoted = encoded(text)
    return content


def _number(value: int | None, what: str) -> int | None:
    """Return an id or a version of a body; 0 and -1 mean none."""
    if value in (None, 0, -1):
        return None
    if not 1 <= value <= VERSION_MAX:
        raise InvalidSchemaText(f"the {what} {value} is not between 1 and {VERSION_MAX}")
    return value
