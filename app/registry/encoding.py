"""JSON as the keys and values that schemas describe.

A value is encoded with the schema that its client names, or with the latest one of the subject of its topic. It is
framed by the id before it, or not at all if a header of its record has the schema.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import msgspec
from stele.schemas import framing
from stele.schemas.definitions import InvalidValue
from stele.schemas.framing import KEY_HEADER, VALUE_HEADER, NotFramed

from ..errors import StorageUnavailable
from .definitions import VERSION_MAX
from .json_process import JsonProcess
from .values import LOOKED_FOR_MAX, Breather, KnownSchema, Place, TopicValues, in_header

# Reasons for one request. To find one may take a schema of JSON as long as to check thousands of values.
_REASONS_MAX = 10


class SchemaName(NamedTuple):
    """How a client names a schema: by its id, or by a subject and a version, None for the latest.

    ``message`` is that of Protobuf; None for the first one.
    """

    id: int | None = None
    subject: str | None = None
    version: int | None = None
    message: str | None = None


class ToEncode(NamedTuple):
    """A key or value as JSON; without a ``name`` it gets the schema of the topic."""

    is_key: bool
    text: bytes
    name: SchemaName | None
    headers: Sequence[tuple[str, bytes | None]]


class Refusal(NamedTuple):
    """Why a key or value is not encoded, and the place in it, a JSON pointer."""

    pointer: str
    reason: str


class _Target(NamedTuple):
    """What a key or value is encoded to.

    ``indexes`` are those of a Protobuf message in a header, empty for other types; None: it gets a prefix.
    """

    place: Place
    message: str | None
    indexes: bytes | None
    named_id: int | None


async def encoded(values: TopicValues, parts: Sequence[ToEncode]) -> list[bytes | Refusal]:
    """Return the bytes of keys and values of one topic.

    Raises ``StorageUnavailable`` if a schema is not known, and the topic of the schemas cannot be read.
    """
    targets: dict[object, _Target | Refusal] = {}
    keys: list[object] = []
    for part in parts:
        key = part.is_key, part.name, tuple(_header_of(part))
        keys.append(key)
        if key not in targets:
            targets[key] = await _target(values, part)
    places = list(dict.fromkeys(target.place for target in targets.values() if isinstance(target, _Target)))
    known: dict[Place, KnownSchema] = {}
    for start in range(0, len(places), LOOKED_FOR_MAX):
        known |= await values.values.find(places[start : start + LOOKED_FOR_MAX])
    jobs = [(part, _known(targets[key], known)) for part, key in zip(parts, keys, strict=True)]
    failure = values.values.failure
    if failure is not None and any(isinstance(target, Refusal) for _, target in jobs):
        raise StorageUnavailable("looking up the schemas of records", failure)
    async with values.values.gate:
        return await asyncio.to_thread(_encode_all, jobs, values.values.process)


def _header_of(part: ToEncode) -> list[bytes | None]:
    name = KEY_HEADER if part.is_key else VALUE_HEADER
    return [value for header, value in part.headers if header == name]


async def _target(values: TopicValues, part: ToEncode) -> _Target | Refusal:
    name = part.name or SchemaName()
    subject = name.subject or (values.key_subject if part.is_key else values.value_subject)
    headers = _header_of(part)
    if headers:
        header = headers[0]
        if header is None or len(headers) > 1:
            return Refusal("", "the header of its schema is null, or there twice")
        try:
            ref, _, indexes = in_header(header, b"")
        except NotFramed as error:
            return Refusal("", f"the header of its schema: {error}")
        return _Target(Place(subject, ref), name.message, indexes, name.id)
    if name.id is not None:
        if not 1 <= name.id <= VERSION_MAX:
            return Refusal("", f"the id {name.id} of its schema is not between 1 and {VERSION_MAX}")
        return _Target(Place(subject, name.id.to_bytes(4, "big")), name.message, None, name.id)
    place = (
        values.encoding_place(is_key=part.is_key)
        if part.name is None
        else await values.values.place_of_named(subject, name.version)
    )
    if place is None:
        version = "no versions" if name.version is None else f"no version {name.version}"
        return Refusal("", f"the subject {subject!r} of its schema has {version}")
    return _Target(place, name.message, None, None)


def _known(
    target: _Target | Refusal, known: dict[Place, KnownSchema]
) -> tuple[_Target, KnownSchema] | Refusal:
    if isinstance(target, Refusal):
        return target
    schema = known.get(target.place)
    if schema is None:
        ref = target.place.ref
        named = int.from_bytes(ref, "big") if len(ref) == 4 else ref.hex()
        return Refusal("", f"its schema {named} is not registered, or cannot be used")
    if target.named_id not in (None, schema.id):
        return Refusal("", f"it names schema {target.named_id}, but a header schema {schema.id}")
    return target, schema


# ── in a thread ──


def _encode_all(
    jobs: Sequence[tuple[ToEncode, tuple[_Target, KnownSchema] | Refusal]], process: JsonProcess
) -> list[bytes | Refusal]:
    results: list[bytes | Refusal] = []
    refused = 0
    breather = Breather()
    for part, target in jobs:
        result = (
            target
            if isinstance(target, Refusal)
            else _encoded(part.text, *target, process, with_reason=refused < _REASONS_MAX)
        )
        breather.breathe()
        refused += isinstance(result, Refusal)
        results.append(result)
    return results


def _encoded(
    text: bytes, target: _Target, known: KnownSchema, process: JsonProcess, *, with_reason: bool
) -> bytes | Refusal:
    schema: Any = known.schema
    named = f"it does not match schema {known.id} of subject {known.subject!r}"
    try:
        if schema.type == "PROTOBUF":
            indexes = _indexes(schema, target)
            payload = schema.encode(msgspec.json.decode(text), indexes)
            if target.indexes is None:
                payload = framing.join_indexes(indexes, payload)
        elif target.message is not None:
            return Refusal("", f"schema {known.id} has no messages: it is of type {schema.type}")
        elif schema.type == "JSON":
            is_prompt = len(text) <= schema.prompt_bytes
            if not with_reason and not (is_prompt and schema.is_valid(text)):
                # A large one may take seconds, and the request is refused already.
                return Refusal("", named if is_prompt else "it was not looked at, because others are refused")
            if is_prompt:
                schema.check(text)
            else:
                process.check(schema, text)
            # Numbers and strings stay as they were written.
            payload = msgspec.json.format(text, indent=-1)
        else:
            payload = cast("bytes", schema.encode(msgspec.json.decode(text)))
    except InvalidValue as error:
        at = f" at {error.pointer}" if error.pointer else ""
        return Refusal(error.pointer, f"{named}{at}: {error.reason}")
    except (ValueError, RecursionError) as error:
        # Also of JSON that is nested too deeply, and ``NotFramed``.
        return Refusal("", f"{named}: {error}")
    return payload if target.indexes is not None else framing.join(known.id, payload)


def _indexes(schema: Any, target: _Target) -> tuple[int, ...]:
    """Return the indexes of the message of a value. Raises ``InvalidValue``, ``NotFramed``."""
    if target.indexes is not None:
        return framing.split_indexes(target.indexes)[0]
    if target.message is not None:
        return schema.indexes(target.message)
    # Raises if there is none.
    schema.message()
    return framing.FIRST_MESSAGE
