"""Encode the keys and values of a request that have a schema.

JSON is encoded if the record or the request names a schema, or if the topic has a subject; everything else is stored as
it is: bytes in base64, null, and a string that begins with U+0000 where nobody has named a schema, because that is
what bytes with a schema look like.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import UNSET

from ...broker.topics import Topic
from ...errors import InvalidRequest, SteleError, UnencodableValue
from ...registry.encoding import Refusal, SchemaName, ToEncode, encoded
from ...registry.values import SchemaValues
from ...work_budget import RECORDS_PER_TURN, WorkBudget
from .json_records import NamedRecordIn, NewRecord, RecordIn, SchemaIn, encode, headers_of, to_record
from .large_bodies import VALUE_BYTES_MAX
from .large_records import to_record_in_turns

# Records that are decoded in one turn of the loop.
_RECORDS_PER_TURN = 128
_FRAME = b'"\\u0000'
# Records of this size are made without a look at the time: those of a turn together take less than one.
_SMALL_BYTES = 1024


class Parsed(NamedTuple):
    """A record that was parsed, the bytes of its text, and its value if that is large and decoded already."""

    record: RecordIn
    size: int
    value: bytes | None


class RecordEncoding:
    """Encodes the records of one request; ``key`` and ``value`` are the schemas that it names.

    Without ``schemas`` nothing is encoded.
    """

    def __init__(
        self,
        schemas: SchemaValues | None,
        *,
        key: SchemaName | None = None,
        value: SchemaName | None = None,
    ) -> None:
        self._schemas = schemas
        self._names = {True: key, False: value}

    async def applies_to(self, topic: Topic) -> bool:
        """Return whether records of a topic that name no schema may have to be encoded."""
        if self._schemas is None:
            return False
        await self._schemas.look()
        return any(self._names.values()) or self._schemas.must_encode(topic)

    async def records(
        self, topic: Topic, parsed: Sequence[Parsed | SteleError], first: int
    ) -> list[NewRecord | SteleError]:
        """Return the records to append, or their errors; ``first`` is the index of the first one in the request."""
        values = None if self._schemas is None else self._schemas.of(topic)
        results: list[NewRecord | SteleError | None] = []
        jobs: list[tuple[int, ToEncode]] = []
        of_all = {
            is_key: values is not None
            and (self._names[is_key] is not None or values.encoding_place(is_key=is_key) is not None)
            for is_key in (True, False)
        }
        is_plain, turn = not any(of_all.values()), WorkBudget()
        for number, each in enumerate(parsed):
            if isinstance(each, SteleError):
                results.append(each)
                continue
            if is_plain and each.size <= _SMALL_BYTES and type(each.record) is RecordIn:
                results.append(_plain(each))
                continue
            try:
                parts: list[ToEncode] = []
                if values is not None and not (is_plain and type(each.record) is RecordIn):
                    parts = self._parts(each, of_all)
                if isinstance(each.record, NamedRecordIn):
                    _check_named(each.record, parts, may_encode=values is not None)
                jobs += [(number, part) for part in parts]
                results.append(None if parts else await to_record_in_turns(*each))
            except SteleError as error:
                results.append(error)
            await turn.spend(each.size, RECORDS_PER_TURN / _RECORDS_PER_TURN)
        if values is not None and jobs:
            done: dict[int, dict[bool, bytes | Refusal]] = {}
            outcomes = await encoded(values, [part for _, part in jobs])
            for (number, part), outcome in zip(jobs, outcomes, strict=True):
                done.setdefault(number, {})[part.is_key] = outcome
            for number, outcome in done.items():
                each = parsed[number]
                assert isinstance(each, Parsed)
                results[number] = _record(each.record, outcome, first + number)
        return [result for result in results if result is not None]

    def _parts(self, parsed: Parsed, of_all: Mapping[bool, bool]) -> list[ToEncode]:
        """Return what is to be encoded of a record; ``of_all``: keys, and values, that name no schema, too.

        Raises ``InvalidRequest``.
        """
        record = parsed.record
        parts: list[ToEncode] = []
        for is_key, text in ((True, _key_text(record)), (False, _value_text(record))):
            if not text:
                continue
            name = self._name(record, is_key=is_key)
            if name is None and (text.startswith(_FRAME) or not of_all[is_key]):
                continue
            if not is_key and parsed.value is not None:
                raise InvalidRequest(
                    f"a value with a schema may have {VALUE_BYTES_MAX} bytes of JSON at most"
                )
            parts.append(ToEncode(is_key, text, name, ()))
        if parts and record.headers:
            headers = headers_of(record)
            parts = [part._replace(headers=headers) for part in parts]
        return parts

    def _name(self, record: RecordIn, *, is_key: bool) -> SchemaName | None:
        if isinstance(record, NamedRecordIn):
            named = record.key_schema if is_key else record.schema
            if named is not None:
                return _own_name(named)
        return self._names[is_key]


def _plain(parsed: Parsed) -> NewRecord | InvalidRequest:
    try:
        return to_record(parsed.record, parsed.value)
    except InvalidRequest as error:
        return error


def _value_text(record: RecordIn) -> bytes:
    """Return the JSON of a value; empty if there is none that may be encoded.

    Null is a tombstone, unless the record says which schema this null is of.
    """
    if record.value is UNSET or record.value_b64 is not UNSET:
        return b""
    text = bytes(record.value)
    is_tombstone = text == b"null" and not (isinstance(record, NamedRecordIn) and record.schema is not None)
    return b"" if is_tombstone else text


def _key_text(record: RecordIn) -> bytes:
    if record.key_b64 is not UNSET:
        return b""
    if isinstance(record, NamedRecordIn):
        return b"" if record.key_text == b"null" and record.key_schema is None else record.key_text
    return b"" if record.key is None else encode(record.key)


def _check_named(record: NamedRecordIn, parts: Sequence[ToEncode], *, may_encode: bool) -> None:
    """Refuse a record whose schema or key makes no sense. Raises ``InvalidRequest``."""
    if not may_encode and (record.schema is not None or record.key_schema is not None):
        raise InvalidRequest("the record names a schema, and records of this request are stored as they are")
    for schema, b64, name in (
        (record.schema, record.value_b64, "value"),
        (record.key_schema, record.key_b64, "key"),
    ):
        if schema is not None and b64 is not UNSET:
            raise InvalidRequest(
                f"the record has {name}_b64 and a schema; bytes are stored as they are: give {name}, or no schema"
            )
    if (
        record.key_text not in (b"", b"null")
        and record.key is None
        and not any(part.is_key for part in parts)
    ):
        raise InvalidRequest(record.problem)


def _record(record: RecordIn, outcomes: dict[bool, bytes | Refusal], index: int) -> NewRecord | SteleError:
    key, value = outcomes.get(True), outcomes.get(False)
    for outcome, part in ((key, "key"), (value, "value")):
        if isinstance(outcome, Refusal):
            return UnencodableValue(index, part, outcome.reason, outcome.pointer)
    try:
        return to_record(
            record, value if isinstance(value, bytes) else None, key if isinstance(key, bytes) else None
        )
    except InvalidRequest as error:
        return error


def _own_name(named: SchemaIn) -> SchemaName:
    """Return what a record names. Raises ``InvalidRequest``."""
    if named.id is not None:
        return SchemaName(named.id, named.subject, None, named.message)
    if named.subject is None:
        raise InvalidRequest("the schema of the record has no id and no subject; give one of the two")
    version = None if named.version == "latest" else named.version
    if isinstance(version, str):
        raise InvalidRequest(f"the version of the schema is {version[:40]!r}; give a number, or latest")
    return SchemaName(None, named.subject, version, named.message)
