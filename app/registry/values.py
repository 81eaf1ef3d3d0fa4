"""The schemas of keys and values, and what they say as JSON.

The state of the registry belongs to the event loop, and values are decoded in threads: the loop finds the schemas that
records name, and a thread decodes what it was given. Reading never fails because of it: bytes whose schema is unknown,
that the schema does not describe, or that would become too much JSON are not decoded.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast
from uuid import UUID

import msgspec
from stele.schemas import framing
from stele.schemas.definitions import InvalidSchema, InvalidValue, ParsedSchema
from stele.schemas.framing import KEY_HEADER, VALUE_HEADER, NotFramed
from stele.schemas.subjects import subject_name
from stele.wire.record_batch import RecordView

from ..broker.topics import Topic
from ..errors import SteleError
from ..storage.topic_config import FIXED_SUBJECT, TopicConfig
from .errors import RegistryError
from .json_process import JsonProcess
from .names import Name
from .parsed import ParsedSchemas
from .state import State, Version
from .store import SchemasTopic

# Of a key or value that is decoded, and of the JSON that it becomes: names of fields and symbols may be long, so a few
# bytes may be a lot of JSON.
PAYLOAD_BYTES_MAX = 1024 * 1024
_TEXT_BYTES_MIN, _TEXT_PER_BYTE = 64 * 1024, 16
# Of the JSON of a value beyond its strings and names: a number, or the marks of an array.
_NUMBER_BYTES, _MARKS_BYTES = 24, 4
# The schemas that are known, and their characters; those that are looked for at once.
_KNOWN_MAX, _CHARACTERS_MAX, LOOKED_FOR_MAX = 1000, 4 << 20, 64
# Versions of a subject that are given as text.
_TEXTS_MAX = 100
# How long a schema that the registry does not have is not looked for again, and how often the end of its topic is.
_MISSING_S, _REFRESH_S, _MISSING_MAX = 1.0, 0.1, 10_000
# For how long a new subject on another broker may go unnoticed by those who write JSON.
_FRESH_S = 5.0
_BY_RECORD = ("record", "topic-record")
# Threads are shared with files: some are always left for those.
_AT_ONCE = 2
# After so long a thread gives the event loop the interpreter.
_HELD_S = 0.00015


class DecodedPart(NamedTuple):
    """A key or value as JSON, on one line, and the JSON object that says which schema it has."""

    text: bytes
    schema: bytes


class DecodedRecord(NamedTuple):
    """What was decoded of a record; None: it is shown as it is."""

    key: DecodedPart | None
    value: DecodedPart | None

    @property
    def size(self) -> int:
        return sum(len(part.text) + len(part.schema) for part in self if part is not None)


# Of records in their order; empty if nothing was decoded.
Decoded = Sequence[DecodedRecord | None]


class Place(NamedTuple):
    """Where a schema is looked for: the id in four bytes or the GUID in sixteen, and the subject that it should have."""

    subject: str
    ref: bytes


@dataclass(frozen=True, slots=True)
class KnownSchema:
    """A schema, and what is shown of it: a JSON object without its end."""

    id: int
    subject: str
    schema: ParsedSchema
    shown: bytes
    characters: int


class SchemaText(NamedTuple):
    """A schema as text, with the texts that it refers to by name, for those who parse it themselves."""

    id: int
    guid: str
    type: str
    text: str
    references: dict[str, str]


class _Frame(NamedTuple):
    """A key or value that names a schema.

    ``indexes`` is what followed the name in a header; None if the name precedes the payload.
    """

    number: int
    is_key: bool
    ref: bytes
    payload: bytes
    indexes: bytes | None


class SchemaValues:
    """The schemas of keys and values; ``aliased`` returns the subject for which a name is an alias."""

    def __init__(
        self,
        topic: SchemasTopic,
        parsed: ParsedSchemas,
        aliased: Callable[[Name], Name],
        process: JsonProcess,
    ) -> None:
        self._topic = topic
        self.process = process
        self._parsed = parsed
        self._aliased = aliased
        self._known: dict[Place, KnownSchema] = {}
        self._characters = 0
        # What was not there, and until when it is not looked for.
        self._missing: dict[Place, float] = {}
        # Whether the topics that were asked for have a subject, by their configurations.
        self._encodes: dict[str, tuple[TopicConfig, bool]] = {}
        self._known_at: tuple[State, int] | None = None
        self._refreshed_s = float("-inf")
        # Why the end of the topic could not be read last time.
        self.failure: str | None = None
        self.gate = asyncio.Semaphore(_AT_ONCE)

    def of(self, topic: Topic) -> TopicValues:
        """Return what decodes the records of a topic."""
        config = topic.config
        return TopicValues(
            self,
            _subject(topic.name, config.key_subject_strategy, is_key=True),
            _subject(topic.name, config.value_subject_strategy, is_key=False),
            config.key_subject_strategy not in _BY_RECORD,
            config.value_subject_strategy not in _BY_RECORD,
        )

    def must_encode(self, topic: Topic) -> bool:
        """Return whether JSON for a topic may have to be encoded; True if that is to be found out by ``look``."""
        if self._now_s() - self._refreshed_s >= _FRESH_S:
            return True
        if not self._topic.state.subjects:
            return False
        self._forget_if_changed()
        known = self._encodes.get(topic.name)
        if known is None or known[0] is not topic.config:
            is_encoded = any(map(self.place_of, self.of(topic).encoding_subjects))
            if len(self._encodes) >= _MISSING_MAX:
                self._encodes.clear()
            known = self._encodes[topic.name] = topic.config, is_encoded
        return known[1]

    async def look(self) -> None:
        """Look for subjects that others have registered, unless that was done a few seconds ago."""
        if self._now_s() - self._refreshed_s >= _FRESH_S:
            await self._refresh()

    def place_of(self, subject: str, number: int | None = None) -> Place | None:
        """Return the place of a version of a subject, by default the latest that is not deleted; None: there is none."""
        known = self._topic.state.subject(self._aliased(Name.parse(subject)))
        if known is None:
            return None
        version = known.versions.get(number) if number is not None else next(reversed(known.live()), None)
        return None if version is None else Place(version.name.qualified, version.id.to_bytes(4, "big"))

    async def place_of_named(self, subject: str, number: int | None) -> Place | None:
        """Do what ``place_of`` does at the end of the topic."""
        await self._refresh()
        return self.place_of(subject, number)

    async def texts(self, topic: Topic) -> list[SchemaText]:
        """Return the versions of the subject of a topic's values, ascending, those that are deleted last.

        Of many, the latest. There are none if values have subjects of their own, or theirs has no version.
        """
        await self._refresh()
        values = self.of(topic)
        subject = self._topic.state.subject(self._aliased(Name.parse(values.value_subject)))
        if not values.has_value_subject or subject is None or not subject.live():
            return []
        deleted = (version for version in subject.versions.values() if version.is_deleted)
        versions = [*subject.live()[-_TEXTS_MAX:], *deleted][:_TEXTS_MAX]
        texts = [text for text in map(self._text, versions) if text is not None]
        sizes = [len(text.text) + sum(map(len, text.references.values())) for text in texts]
        while len(texts) > 1 and sum(sizes) > _CHARACTERS_MAX:
            del texts[0], sizes[0]
        return texts

    async def text(self, topic: Topic, ref: int | str) -> SchemaText | None:
        """Return the schema that values of a topic name, by its id or its GUID; None if there is none."""
        await self._refresh()
        named = UUID(ref).bytes if isinstance(ref, str) else ref.to_bytes(4, "big")
        subject = self._aliased(Name.parse(self.of(topic).value_subject))
        version = _version_of(self._topic.state, subject, named)
        return None if version is None else self._text(version)

    def _text(self, version: Version) -> SchemaText | None:
        try:
            references = self._parsed.sources(self._topic.state, version)
        except InvalidSchema:
            return None
        content = version.content
        return SchemaText(version.id, str(content.guid), content.schema_type, content.text, references)

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()

    async def find(self, places: Iterable[Place]) -> dict[Place, KnownSchema]:
        """Return the schemas that there are, of not more than ``LOOKED_FOR_MAX`` that were not known."""
        self._forget_if_changed()
        now_s = self._now_s()
        found: dict[Place, KnownSchema] = {}
        unknown: list[Place] = []
        for place in places:
            known = self._known.get(place)
            if known is not None:
                found[place] = known
            elif self._missing.get(place, 0.0) <= now_s:
                unknown.append(place)
        if unknown:
            await self._refresh()
        for place in unknown[:LOOKED_FOR_MAX]:
            known = await self._look_up(place)
            if known is not None:
                found[place] = known
                continue
            if len(self._missing) >= _MISSING_MAX:
                self._missing.clear()
            self._missing[place] = now_s + _MISSING_S
        return found

    async def _refresh(self) -> None:
        """Look at the end of the topic, unless that was done a moment ago; others may have registered something."""
        now_s = self._now_s()
        if now_s - self._refreshed_s >= _REFRESH_S:
            try:
                await self._topic.refresh()
                self.failure = None
            except (RegistryError, SteleError) as error:
                self.failure = str(error)
            self._refreshed_s = max(self._refreshed_s, now_s)
        self._forget_if_changed()

    def _forget_if_changed(self) -> None:
        now = self._topic.state, self._topic.state.position
        if self._known_at != now:
            self._known_at = now
            # Threads may still use the old ones.
            self._known, self._missing, self._characters, self._encodes = {}, {}, 0, {}

    async def _look_up(self, place: Place) -> KnownSchema | None:
        state = self._topic.state
        at = state, state.position
        subject = self._aliased(Name.parse(place.subject))
        version = _version_of(state, subject, place.ref)
        if version is None:
            return None
        try:
            characters = self._parsed.characters(state, version)
            schema = await self._parsed.of(state, version)
        except InvalidSchema:
            return None
        named = version.name.qualified
        shown = {
            "id": version.id,
            "subject": named,
            "version": version.number,
            "type": schema.type,
        }
        known = KnownSchema(version.id, named, schema, msgspec.json.encode(shown)[:-1], characters)
        if self._known_at == at and place not in self._known:
            self._known[place] = known
            self._characters += characters
            while len(self._known) > _KNOWN_MAX or (
                self._characters > _CHARACTERS_MAX and len(self._known) > 1
            ):
                self._characters -= self._known.pop(next(iter(self._known))).characters
        return known


@dataclass(frozen=True, slots=True)
class TopicValues:
    """Decodes the records of a topic: equal to another if that makes the same of them.

    The subjects are those that the schemas of keys and values should have. Ids are those of their contexts.
    """

    values: SchemaValues
    key_subject: str
    value_subject: str
    # Whether that is the subject of all records: otherwise the record or message names it.
    has_key_subject: bool = True
    has_value_subject: bool = True

    @property
    def encoding_subjects(self) -> list[str]:
        """The subjects whose schemas keys and values get."""
        subjects = (self.key_subject, self.has_key_subject), (self.value_subject, self.has_value_subject)
        return [subject for subject, is_of_all in subjects if is_of_all]

    def encoding_place(self, *, is_key: bool) -> Place | None:
        """Return the schema that keys or values get if they name none; None: they are stored as they are."""
        subject = self.key_subject if is_key else self.value_subject
        is_of_all = self.has_key_subject if is_key else self.has_value_subject
        return self.values.place_of(subject) if is_of_all else None

    async def decoded(self, records: Sequence[RecordView]) -> Decoded:
        """Return what keys and values are as JSON."""
        frames = [frame for number in framed(records) for frame in _frames(number, records[number])]
        if not frames:
            return ()
        places = {(frame.is_key, frame.ref): self._place(frame) for frame in frames}
        found = await self.values.find(dict.fromkeys(places.values()))
        jobs = [
            (frame, known)
            for frame in frames
            if (known := found.get(places[frame.is_key, frame.ref])) is not None
        ]
        if not jobs:
            return ()
        async with self.values.gate:
            parts = await asyncio.to_thread(_decode_all, jobs)
        if not parts:
            return ()
        return [
            DecodedRecord(key, value) if key is not None or value is not None else None
            for number in range(len(records))
            for key, value in ((parts.get((number, True)), parts.get((number, False))),)
        ]

    def _place(self, frame: _Frame) -> Place:
        return Place(self.key_subject if frame.is_key else self.value_subject, frame.ref)


def framed(records: Sequence[RecordView]) -> list[int]:
    """Return the indexes of the records that may name a schema: a look at a byte or two of each."""
    return [
        number
        for number, record in enumerate(records)
        if ((value := record.value) and not value[0])
        or ((key := record.key) and not key[0])
        or (record.headers and any(name in (VALUE_HEADER, KEY_HEADER) for name, _ in record.headers))
    ]


def _subject(topic: str, strategy: str, *, is_key: bool) -> str:
    """Return the subject that a schema should have; if it has the name of a record, that of the topic will do."""
    if strategy.startswith(FIXED_SUBJECT):
        return strategy.removeprefix(FIXED_SUBJECT)
    return subject_name("topic", topic, None, is_key=is_key)


def _version_of(state: State, subject: Name, ref: bytes) -> Version | None:
    """Return the version that has a schema: of this subject if it has it, otherwise the first that is not deleted."""
    if len(ref) > 4:
        versions = state.by_guid.get(UUID(bytes=ref), ())
    else:
        context = state.contexts.get(subject.context)
        versions = () if context is None else context.by_id.get(int.from_bytes(ref, "big"), ())
    return min(
        versions,
        key=lambda version: (version.name != subject, version.is_deleted, -version.number),
        default=None,
    )


def _frames(number: int, record: RecordView) -> list[_Frame]:
    frames: list[_Frame] = []
    for is_key, data, header in ((True, record.key, KEY_HEADER), (False, record.value, VALUE_HEADER)):
        if data is None or len(data) > PAYLOAD_BYTES_MAX:
            continue
        named = [value for name, value in record.headers if name == header] if record.headers else ()
        try:
            if not named:
                schema_id, payload = framing.split(data)
                frames.append(_Frame(number, is_key, schema_id.to_bytes(4, "big"), payload, None))
            elif named[0] is not None and len(named) == 1:
                frames.append(_Frame(number, is_key, *in_header(named[0], data)))
        except NotFramed:
            continue
    return frames


def in_header(header: bytes, payload: bytes) -> tuple[bytes, bytes, bytes]:
    if header[:1] == b"\0":
        schema_id, rest = framing.split(header)
        return schema_id.to_bytes(4, "big"), payload, rest
    guid, rest = framing.split_header(header)
    return guid.bytes, payload, rest


# ── in a thread ──

_skip = msgspec.json.Decoder(msgspec.Raw).decode


class Breather:
    """Gives the event loop the interpreter again and again, while a thread computes."""

    def __init__(self) -> None:
        self._since_s = time.perf_counter()

    def breathe(self) -> None:
        if time.perf_counter() - self._since_s > _HELD_S:
            time.sleep(0)
            self._since_s = time.perf_counter()


def _decode_all(jobs: Sequence[tuple[_Frame, KnownSchema]]) -> dict[tuple[int, bool], DecodedPart]:
    parts: dict[tuple[int, bool], DecodedPart] = {}
    breather = Breather()
    for frame, known in jobs:
        part = _decoded(frame, known)
        breather.breathe()
        if part is not None:
            parts[frame.number, frame.is_key] = part
    return parts


def _decoded(frame: _Frame, known: KnownSchema) -> DecodedPart | None:
    payload, schema = frame.payload, known.schema
    bytes_max = _TEXT_BYTES_MIN + _TEXT_PER_BYTE * len(payload)
    shown = known.shown
    try:
        if schema.type == "JSON":
            json_schema = cast("Any", schema)
            if len(payload) > json_schema.prompt_bytes:
                # To validate it would hold the interpreter. That it is JSON will do to show it.
                payload.decode()
                _skip(payload)
            elif not json_schema.is_valid(payload):
                return None
            # As it was written: line ends can only stand between the tokens.
            return DecodedPart(payload.translate(None, b"\r\n"), shown + b"}")
        if schema.type == "PROTOBUF":
            protobuf = cast("Any", schema)
            before = payload if frame.indexes is None else frame.indexes
            indexes, rest = framing.split_indexes(before)
            value = protobuf.decode(rest if frame.indexes is None else payload, indexes)
            if indexes != framing.FIRST_MESSAGE:
                shown += b',"message":' + msgspec.json.encode(protobuf.message(indexes).full_name)
        else:
            value = schema.decode(payload)
        if not _is_within(value, bytes_max):
            return None
        text = msgspec.json.encode(value)
    except (InvalidValue, ValueError, RecursionError):
        # Also ``NotFramed``, of the indexes.
        return None
    return None if len(text) > bytes_max else DecodedPart(text, shown + b"}")


def _is_within(value: Any, room: int) -> bool:
    """Return whether a value is about ``room`` bytes of JSON at most: it may share one long name a million times."""
    left = [value]
    while left:
        each = left.pop()
        kind: Any = each.__class__
        if kind is str:
            room -= len(each)
        elif kind is dict:
            room -= sum(map(len, each)) + _MARKS_BYTES * len(each)
            left += each.values()
        elif kind is list:
            left += each
        else:
            room -= _NUMBER_BYTES if kind is float or kind is int else _MARKS_BYTES
        room -= 2
        if room < 0:
            return False
    return True
