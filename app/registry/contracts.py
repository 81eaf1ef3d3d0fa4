"""Holds topics to their contracts: checks keys and values against the schemas that they name.

The state of the registry belongs to the event loop, and records are checked in threads. So the loop makes a
``_KnownSchema`` of each schema that records name, and the threads use those. What is known stays until the topic of the
schemas has changed. What is not known, or would refuse a record, is looked for at the end of that topic first: another
broker may have registered the schema a moment ago.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple, cast
from uuid import UUID

from stele.schemas import framing
from stele.schemas.definitions import InvalidSchema, InvalidValue, ParsedSchema
from stele.schemas.framing import NotFramed
from stele.schemas.subjects import Strategy, subject_name
from stele.wire.record_batch import RecordView

from ..broker.producing.contracts import ContractCheck, TopicContract, UnknownSchemas
from ..errors import BrokenContract, RecordError, StorageUnavailable
from ..storage.topic_config import FIXED_SUBJECT, TopicConfig
from .errors import RegistryError
from .json_process import JsonProcess
from .names import Name
from .parsed import ParsedSchemas
from .state import State, Version
from .store import SchemasTopic

# For how long a deletion on another broker may go unnoticed. New schemas are noticed at once.
_FRESH_S = 5.0
# Of one produce: the schemas that its records may name, and the characters of those that are not known yet.
_SCHEMAS_MAX, _CHARACTERS_MAX = 1000, 4 << 20
# Reasons for one batch. To find one may take a schema of JSON as long as to check thousands of values.
_REASONS_MAX = 10
_PREFIX_BYTES = 5
# After so long a thread gives the event loop the interpreter, which takes 50 µs and more. A produce to another topic waits
# for it up to three times.
_HELD_S = 0.000075

# An id with the zero before it, as in a prefix, or a GUID in sixteen bytes.
_Ref = bytes


class _Place(NamedTuple):
    """Where a schema is looked for: a context, and the id or the GUID; whether its text is needed."""

    context: str
    ref: _Ref
    is_parsed: bool


@dataclass(frozen=True, slots=True)
class _KnownSchema:
    """A schema, and the subjects in which it is not deleted.

    ``schema`` is None if only its id counts, or if ``problem`` says why it cannot be used.
    """

    subjects: frozenset[str]
    schema: ParsedSchema | None
    problem: str
    characters: int


_UNREGISTERED = _KnownSchema(frozenset(), None, "is not registered", 0)


@dataclass(frozen=True, slots=True)
class _Part:
    """What a contract asks of keys, or of values.

    ``subject`` is the qualified subject of all records; None if the strategy names it after the record.
    """

    is_key: bool
    checks_content: bool
    strategy: str
    topic: str
    subject: str | None

    @property
    def name(self) -> str:
        return "key" if self.is_key else "value"

    def place(self, ref: _Ref) -> _Place:
        context = Name.parse(self.subject or "").context
        return _Place(context, ref, self.checks_content or self.subject is None)


class SchemaContracts:
    """The contracts of the topics of one broker; ``aliased`` returns the subject for which a name is an alias."""

    def __init__(self, topic: SchemasTopic, parsed: ParsedSchemas, aliased: Callable[[Name], Name]) -> None:
        self._topic = topic
        self._parsed = parsed
        self._aliased = aliased
        self.process = JsonProcess()
        self._refreshed_s = -_FRESH_S
        # What is known of the state as it was at a position.
        self.known: dict[_Place, _KnownSchema] = {}
        self._known_at: tuple[State, int] | None = None
        self._characters = 0

    async def of(self, topic: str, config: TopicConfig) -> TopicContract:
        if asyncio.get_running_loop().time() - self._refreshed_s >= _FRESH_S:
            try:
                await self._refresh()
            except StorageUnavailable:
                # What was registered still is, for all that this broker knows.
                self._refreshed_s = asyncio.get_running_loop().time()
        self._forget_if_changed()
        parts = (
            self._part(topic, config.key_schema_validation, config.key_subject_strategy, is_key=True),
            self._part(topic, config.value_schema_validation, config.value_subject_strategy, is_key=False),
        )
        return _Contract(self, topic, tuple(part for part in parts if part is not None), {})

    def _part(self, topic: str, validation: str, strategy: str, *, is_key: bool) -> _Part | None:
        if validation == "none":
            return None
        subject = strategy.removeprefix(FIXED_SUBJECT)
        if strategy == "topic":
            subject = subject_name("topic", topic, None, is_key=is_key)
        is_fixed = strategy not in ("record", "topic-record")
        return _Part(
            is_key=is_key,
            checks_content=validation == "content",
            strategy=strategy,
            topic=topic,
            subject=self.subject(subject) if is_fixed else None,
        )

    def subject(self, name: str) -> str:
        """Return the qualified name of a subject or of the one for which it is an alias; also in threads."""
        return self._aliased(Name.parse(name)).qualified

    async def look_up(self, topic: str, places: Sequence[_Place]) -> dict[_Place, _KnownSchema]:
        """Return what there is about schemas that are not known. Raises as ``TopicContract.look_up``."""
        await self._refresh()
        self._forget_if_changed()
        found: dict[_Place, _KnownSchema] = {}
        characters = 0
        for place in places:
            known = await self._look_up(place, _CHARACTERS_MAX - characters)
            if known is None:
                reason = (
                    f"its schemas have more than {_CHARACTERS_MAX} characters together; send smaller batches"
                )
                raise BrokenContract(topic, [RecordError(0, reason)])
            characters += known.characters
            found[place] = known
        return found

    async def _look_up(self, place: _Place, characters_max: int) -> _KnownSchema | None:
        """Return what is known of a schema; None if it is too large."""
        state = self._topic.state
        at = state, state.position
        versions = _versions(state, place)
        if not versions:
            # A record may come before its schema is there, so that is not remembered.
            return _UNREGISTERED
        subjects = frozenset(version.name.qualified for version in versions if not version.is_deleted)
        schema, problem, characters = None, "", 0
        if place.is_parsed:
            try:
                characters = self._parsed.characters(state, versions[0])
                if characters > characters_max:
                    return None
                schema = await self._parsed.of(state, versions[0])
            except InvalidSchema as error:
                problem = f"cannot be used: {error.reason}"
        known = _KnownSchema(subjects, schema, problem, characters)
        if self._known_at == at:
            self._remember(place, known)
        return known

    def _remember(self, place: _Place, known: _KnownSchema) -> None:
        old = self.known.pop(place, None)
        self._characters -= 0 if old is None else old.characters
        self.known[place] = known
        self._characters += known.characters
        while len(self.known) > _SCHEMAS_MAX or (self._characters > _CHARACTERS_MAX and len(self.known) > 1):
            self._characters -= self.known.pop(next(iter(self.known))).characters

    async def _refresh(self) -> None:
        now_s = asyncio.get_running_loop().time()
        try:
            await self._topic.refresh()
        except RegistryError as error:
            raise StorageUnavailable("looking up the schemas of records", str(error)) from error
        self._refreshed_s = now_s

    def _forget_if_changed(self) -> None:
        now = self._topic.state, self._topic.state.position
        if self._known_at != now:
            # Threads may still use the old one.
            self.known, self._known_at, self._characters = {}, now, 0


def _versions(state: State, place: _Place) -> Sequence[Version]:
    if len(place.ref) > _PREFIX_BYTES:
        return state.by_guid.get(UUID(bytes=place.ref), ())
    context = state.contexts.get(place.context)
    return () if context is None else context.by_id.get(int.from_bytes(place.ref, "big"), ())


class _Contract:
    """The contract of a topic for one produce; a thread uses it while no other does.

    ``fresh`` was looked up for this produce, at the end of the topic of the schemas.
    """

    def __init__(
        self,
        contracts: SchemaContracts,
        topic: str,
        parts: Sequence[_Part],
        fresh: Mapping[_Place, _KnownSchema],
    ) -> None:
        self._contracts = contracts
        self.topic = topic
        self.parts = parts
        self._fresh = fresh
        self._shared = contracts.known
        # What was met: that which was looked up before, and that which is to be looked up.
        self._met: dict[_Place, _KnownSchema] = {}
        self._unknown: dict[_Place, None] = {}

    def check(self) -> ContractCheck:
        return _Check(self)

    def known(self, place: _Place) -> _KnownSchema | None:
        """Return what is known of a schema, and note it if that is nothing."""
        known = self._fresh.get(place)
        if known is None:
            known = self._shared.get(place)
            if known is None:
                self._unknown[place] = None
            else:
                self._met[place] = known
        return known

    def must_look_up(self, place: _Place) -> bool:
        """Return whether what is known of a schema may be too old to refuse a record, and note it if so."""
        if place in self._fresh:
            return False
        self._unknown[place] = None
        return True

    @property
    def is_too_varied(self) -> bool:
        return len(self._fresh) + len(self._met) + len(self._unknown) > _SCHEMAS_MAX

    def subject(self, part: _Part, schema: ParsedSchema, indexes: tuple[int, ...] | None) -> str:
        """Return the subject that the schema of a record must have. Raises ``ValueError``, ``InvalidValue``."""
        if part.subject is not None:
            return part.subject
        name = schema.full_name
        if indexes is not None:
            name = cast("Any", schema).message(indexes).full_name
        strategy = cast("Strategy", part.strategy)
        return self._contracts.subject(subject_name(strategy, part.topic, name, is_key=part.is_key))

    def content_check(self, schema: ParsedSchema) -> Callable[..., None]:
        """Return what checks payloads of a schema, those that take long in another process."""
        check = cast("Any", schema).check
        if schema.type != "JSON":
            return check
        prompt_bytes = cast("Any", schema).prompt_bytes
        check_apart = partial(self._contracts.process.check, cast("Any", schema))

        def check_json(payload: bytes) -> None:
            (check if len(payload) <= prompt_bytes else check_apart)(payload)

        return check_json

    def conclude(self) -> None:
        if self._unknown:
            raise UnknownSchemas

    async def look_up(self) -> TopicContract:
        fresh = await self._contracts.look_up(self.topic, list(self._unknown))
        return _Contract(self._contracts, self.topic, self.parts, {**self._met, **fresh})


class _Refused(Exception):
    """A record breaks the contract."""

    def __init__(self, reason: str, pointer: str = "") -> None:
        self.reason = reason
        self.pointer = pointer


class _Check:
    """Checks the records of one batch."""

    def __init__(self, contract: _Contract) -> None:
        self._contract = contract
        self._errors: list[RecordError] = []
        self._parts = [_PartCheck(contract, part).look_at for part in contract.parts]

    def look_at(self, records: Sequence[RecordView], first_index: int) -> None:
        if len(self._errors) >= _REASONS_MAX:
            return
        held_since_s = time.perf_counter()
        for index, record in enumerate(records, first_index):
            try:
                for look_at in self._parts:
                    look_at(record)
            except _Refused as refused:
                self._errors.append(RecordError(index, refused.reason, refused.pointer))
                if len(self._errors) == _REASONS_MAX:
                    return
            if time.perf_counter() - held_since_s > _HELD_S:
                time.sleep(0)
                held_since_s = time.perf_counter()

    def conclude(self) -> None:
        if self._errors:
            raise BrokenContract(self._contract.topic, self._errors, refused=len(self._errors))


class _PartCheck:
    """Checks the keys, or the values, of one batch."""

    def __init__(self, contract: _Contract, part: _Part) -> None:
        self._contract = contract
        self._part = part
        self._data = attrgetter("key" if part.is_key else "value")
        self._header = framing.KEY_HEADER if part.is_key else framing.VALUE_HEADER
        # What checks the payloads of a schema: for Protobuf with what precedes them, the indexes of a message.
        self._checks: dict[_Ref, Callable[[bytes, bytes | None], None]] = {}

    def look_at(self, record: RecordView) -> None:
        """Raises ``_Refused``."""
        data = self._data(record)
        if data is None:
            return
        headers = record.headers
        if not headers:
            check = self._checks.get(data[:_PREFIX_BYTES])
            if check is not None:
                check(data[_PREFIX_BYTES:], None)
                return
        ref, payload, indexes = self._unframed(data, headers)
        check = self._checks.get(ref) or self._check_of(ref)
        if check is not None:
            check(payload, indexes)

    def _unframed(
        self, data: bytes, headers: Sequence[tuple[str, bytes | None]]
    ) -> tuple[_Ref, bytes, bytes | None]:
        """Return id or GUID, the payload, and what followed them in a header; None for a prefix."""
        try:
            framed = [value for name, value in headers if name == self._header] if headers else ()
            if framed:
                return self._unframed_by_header(data, framed)
            if len(data) < _PREFIX_BYTES or data[0]:
                # It says what is wrong.
                framing.split(data)
            return data[:_PREFIX_BYTES], data[_PREFIX_BYTES:], None
        except NotFramed as error:
            raise _Refused(f"its {self._part.name} names no schema: {error}") from None

    def _unframed_by_header(
        self, data: bytes, framed: Sequence[bytes | None]
    ) -> tuple[_Ref, bytes, bytes | None]:
        value = framed[0]
        if value is None or len(framed) > 1:
            # Readers take the first one or the last one.
            raise NotFramed(f"the header {self._header} is null, or there twice")
        if value[:1] == b"\0":
            schema_id, rest = framing.split(value)
            return schema_id.to_bytes(_PREFIX_BYTES, "big"), data, rest
        guid, rest = framing.split_header(value)
        return guid.bytes, data, rest

    def _check_of(self, ref: _Ref) -> Callable[[bytes, bytes | None], None] | None:
        """Return what checks the payloads of a schema; None if it is not known yet. Raises ``_Refused``."""
        contract, part = self._contract, self._part
        place = part.place(ref)
        known = contract.known(place)
        if contract.is_too_varied:
            raise _Refused(f"its batch names more than {_SCHEMAS_MAX} schemas; send smaller ones")
        if known is None:
            return None
        named = f"schema {_shown(ref)} of its {part.name}"
        schema, subjects = known.schema, known.subjects
        if known.problem or (part.subject is not None and part.subject not in subjects):
            if contract.must_look_up(place):
                return None
            raise _Refused(f"{named} {known.problem or f'is not registered under subject {part.subject!r}'}")

        is_protobuf = schema is not None and schema.type == "PROTOBUF"
        check_content = contract.content_check(schema) if part.checks_content and schema else None

        def check(payload: bytes, in_header: bytes | None) -> None:
            if schema is None:
                return
            try:
                indexes = None
                if is_protobuf:
                    indexes, rest = framing.split_indexes(payload if in_header is None else in_header)
                    payload = rest if in_header is None else payload
                if part.subject is None:
                    subject = contract.subject(part, schema, indexes)
                    if subject not in subjects:
                        if contract.must_look_up(place):
                            return
                        raise _Refused(f"{named} is not registered under subject {subject!r}")
                if check_content is None:
                    return
                if indexes is None:
                    check_content(payload)
                else:
                    check_content(payload, indexes)
            except InvalidValue as error:
                at = f" at {error.pointer}" if error.pointer else ""
                raise _Refused(
                    f"its {part.name} does not match schema {_shown(ref)}{at}: {error.reason}", error.pointer
                ) from None
            except ValueError as error:
                # Also ``NotFramed``, of the indexes.
                raise _Refused(f"{named}: {error}") from None

        self._checks[ref] = check
        return check


def _shown(ref: _Ref) -> str:
    return str(UUID(bytes=ref)) if len(ref) > _PREFIX_BYTES else str(int.from_bytes(ref, "big"))
