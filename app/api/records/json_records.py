"""Convert records from and to JSON without loss: bytes → JSON → bytes is exact.

Input: a JSON string is stored as its UTF-8 text without the quotes, any other JSON
value as its compact text, with numbers as the client wrote them. ``null`` is a
tombstone. ``value_b64`` carries arbitrary bytes. Output: bytes that are valid UTF-8
are a string in ``value``, all others are in ``value_b64``. What a schema describes is
shown as the JSON of ``stele.schemas`` (``decoded_json``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import msgspec
import pybase64
from msgspec import UNSET, Raw, Struct, UnsetType
from stele.wire.notation import INT64_MAX
from stele.wire.record_batch import RecordView, Row

from ...errors import InvalidRequest
from ..schemas import Shown
from .json_types import NewRecordJson

# Of a body. Each takes 64 bytes while the others are found, and about 240 until it is in a batch.
RECORDS_MAX = 500_000
_QUOTE, _N = ord('"'), ord("n")


class HeaderIn(Struct, forbid_unknown_fields=True):
    key: str
    value: str | UnsetType | None = UNSET
    value_b64: str | UnsetType = UNSET


class RecordIn(Struct, forbid_unknown_fields=True, gc=False):
    """A record as a producer sends it.

    ``topic`` and ``offset`` are accepted and ignored, so that a record that was read
    can be produced again unchanged. A transaction writes to ``topic``.
    """

    value: Raw | UnsetType = UNSET
    value_b64: str | UnsetType = UNSET
    key: str | None = None
    key_b64: str | UnsetType = UNSET
    headers: Sequence[HeaderIn] = ()
    timestamp: int | None = None
    partition: int | None = None
    topic: str | None = None
    offset: int | None = None


class SchemaIn(Struct, forbid_unknown_fields=True):
    """How a record names the schema of its key or value: by its id, or by a subject and a version of it.

    Without an id the ``version`` is a number or ``latest``. A ``type`` is accepted and ignored, as it is read.
    """

    id: int | None = None
    subject: str | None = None
    version: int | str | None = None
    type: str | None = None
    message: str | None = None


class _RecordWithSchemaIn(Struct, forbid_unknown_fields=True, rename={"key_schema": "keySchema"}):
    """What ``RecordIn`` has, any JSON as a key, and schemas."""

    value: Raw | UnsetType = UNSET
    value_b64: str | UnsetType = UNSET
    key: Raw | UnsetType = UNSET
    key_b64: str | UnsetType = UNSET
    headers: Sequence[HeaderIn] = ()
    timestamp: int | None = None
    partition: int | None = None
    topic: str | None = None
    offset: int | None = None
    schema: SchemaIn | None = None
    key_schema: SchemaIn | None = None


class NamedRecordIn(RecordIn):
    """A record with a schema, or with a key that is no string; ``key`` is None then, and ``key_text`` its JSON.

    ``problem`` says what is wrong with it if the key has no schema.
    """

    key_text: bytes = b""
    schema: SchemaIn | None = None
    key_schema: SchemaIn | None = None
    problem: str = ""


class PlainRecordIn(Struct, forbid_unknown_fields=True, gc=False):
    """A record without optional fields, which ``decode_lines`` decodes faster."""

    value: Raw
    key: str | None = None


class ProduceBody(Struct, forbid_unknown_fields=True):
    """The body ``{"records": [RECORD…]}``.

    Records are decoded one by one, so that an error has an index.
    """

    records: Annotated[list[Raw], Shown(kind=list[NewRecordJson])]


class HeaderOut(Struct, omit_defaults=True):
    key: str
    value: str | UnsetType | None = UNSET
    value_b64: str | UnsetType = UNSET


class RecordOut(Struct, omit_defaults=True):
    partition: int | UnsetType
    offset: int | UnsetType
    timestamp: int | UnsetType
    key: Any = UNSET
    key_b64: str | UnsetType = UNSET
    value: Any = UNSET
    value_b64: str | UnsetType = UNSET
    headers: list[HeaderOut] | UnsetType = UNSET
    value_bytes: int | UnsetType = UNSET
    is_cut: bool | UnsetType = UNSET


class NewRecord(NamedTuple):
    """A record to append; without ``partition`` the partitioner chooses one."""

    value: bytes | None
    key: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp_ms: int | None
    partition: int | None


_decode_record = msgspec.json.Decoder(RecordIn).decode
_decode_with_schema = msgspec.json.Decoder(_RecordWithSchemaIn).decode
_decode_plain_lines = msgspec.json.Decoder(PlainRecordIn).decode_lines
decode_string = msgspec.json.Decoder(str).decode
_decode_raw = msgspec.json.Decoder(Raw).decode
decode_produce_body = msgspec.json.Decoder(ProduceBody).decode
_encoder = msgspec.json.Encoder()
encode = _encoder.encode
encode_lines = _encoder.encode_lines
_NO_HEADERS: list[tuple[str, bytes | None]] = []
_NO_HEADERS_OUT: list[HeaderOut] = []


def decode_record(text: bytes | Raw) -> NewRecord:
    """Decode the JSON text of a record without a schema.

    Raises:
        InvalidRequest: the text is not a valid record, or has a schema.
    """
    parsed = parse_record(text)
    if isinstance(parsed, NamedRecordIn):
        raise InvalidRequest(parsed.problem)
    return to_record(parsed)


def parse_record(text: bytes | memoryview | Raw) -> RecordIn:
    """Parse the JSON text of a record, but not its value.

    This is the first half of ``decode_record``; ``large_records`` lets the event loop run between the halves.

    Raises:
        InvalidRequest: the text is not JSON, or not an object with fields of a record.
    """
    try:
        return _decode_record(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        return _parse_with_schema(text, error)


def _parse_with_schema(text: bytes | memoryview | Raw, reason_against: Exception) -> RecordIn:
    """Parse a record that is not a plain one for a reason. Raises ``InvalidRequest``."""
    try:
        parsed = _decode_with_schema(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        is_about_schema = "`schema`" in str(reason_against) or "`keySchema`" in str(reason_against)
        raise invalid_record(error if is_about_schema else reason_against) from error
    key = b"" if parsed.key is UNSET else bytes(parsed.key)
    return NamedRecordIn(
        value=parsed.value,
        value_b64=parsed.value_b64,
        key_b64=parsed.key_b64,
        headers=parsed.headers,
        timestamp=parsed.timestamp,
        partition=parsed.partition,
        topic=parsed.topic,
        offset=parsed.offset,
        key=decode_string(key) if key.startswith(b'"') else None,
        key_text=key,
        schema=parsed.schema,
        key_schema=parsed.key_schema,
        problem=str(invalid_record(reason_against)),
    )


def to_record(parsed: RecordIn, value: bytes | None = None, key: bytes | None = None) -> NewRecord:
    """Decode the value, key and headers of a parsed record.

    ``value`` and ``key`` are given if they are decoded already.

    Raises:
        InvalidRequest: one of them is not valid.
    """
    try:
        return NewRecord(
            _value(parsed, value),
            _key(parsed) if key is None else key,
            headers_of(parsed),
            _timestamp(parsed),
            parsed.partition,
        )
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise invalid_record(error) from error


def invalid_record(error: Exception) -> InvalidRequest:
    """Return the error of a record that a decoder refuses."""
    return InvalidRequest(f"the record is not valid: {reason(error)}")


def reason(error: Exception) -> str:
    """Return what a decoder says against a text.

    For bytes that are no text it is one sentence, because some versions of msgspec raise Python's own error, with a
    place that counts from the beginning of a string or of a piece.
    """
    return "Invalid UTF-8 encoded string" if isinstance(error, UnicodeDecodeError) else str(error)


def decode_lines(block: bytes, now_ms: int) -> list[Row] | None:
    """Decode whole NDJSON lines of records that have only a value and a key.

    This costs a fifth of decoding the lines one by one. Blank lines are skipped. A row
    never takes more bytes than its line.

    Returns None if a line is invalid or has other fields; decode them one by one then.
    """
    try:
        block.decode()
        parsed = _decode_plain_lines(block)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    may_have_blanks = b" " in block or b"\t" in block or b"\r" in block
    rows: list[Row] = []
    add = rows.append
    for record in parsed:
        value: bytes | None = bytes(record.value)
        first = value[0]
        if first == _QUOTE:
            value = value[1:-1] if b"\\" not in value else decode_string(value).encode()
        elif first == _N:
            value = None
        elif may_have_blanks and _has_blank(value):
            value = msgspec.json.format(value, indent=-1)
        key = record.key
        add((now_ms, None if key is None else key.encode(), value, _NO_HEADERS))
    return rows


def _value(record: RecordIn, decoded: bytes | None) -> bytes | None:
    raw, b64 = record.value, record.value_b64
    if b64 is not UNSET:
        if raw is not UNSET:
            raise InvalidRequest("the record has both value and value_b64; give one of the two")
        return from_b64(b64, "value_b64") if decoded is None else decoded
    if raw is UNSET:
        raise InvalidRequest(
            "the record has no value; give value or value_b64, or value null for a tombstone"
        )
    if decoded is not None:
        return decoded
    text = bytes(raw)
    first = text[:1]
    if first == b'"':
        return decode_string(text).encode()
    if first == b"n":
        return None
    # What the decoder passes over as a whole is not checked by it: JSON is UTF-8 (RFC 8259, section 8.1).
    text.decode()
    return compacted(text)


def compacted(text: bytes) -> bytes:
    """Return a JSON value without blanks; numbers and strings stay as the client wrote them."""
    return msgspec.json.format(text, indent=-1) if _has_blank(text) else text


def _key(record: RecordIn) -> bytes | None:
    if record.key_b64 is not UNSET:
        if record.key is not None:
            raise InvalidRequest("the record has both key and key_b64; give one of the two")
        return from_b64(record.key_b64, "key_b64")
    return None if record.key is None else record.key.encode()


def headers_of(record: RecordIn) -> list[tuple[str, bytes | None]]:
    """Return the headers of a record. Raises ``InvalidRequest``."""
    if not record.headers:
        return _NO_HEADERS
    headers: list[tuple[str, bytes | None]] = []
    for header in record.headers:
        if header.value_b64 is not UNSET:
            if header.value is not UNSET:
                raise InvalidRequest("a header has both value and value_b64; give one of the two")
            headers.append((header.key, from_b64(header.value_b64, "header value_b64")))
        elif header.value is UNSET or header.value is None:
            headers.append((header.key, None))
        else:
            headers.append((header.key, header.value.encode()))
    return headers


def _timestamp(record: RecordIn) -> int | None:
    return None if record.timestamp is None else checked_timestamp(record.timestamp)


def checked_timestamp(timestamp_ms: int) -> int:
    """Return the time of a record as it is stored: -1 is none, less is before 1970.

    The topic decides whether it accepts the time (``app/broker/producing/timestamps.py``).

    Raises:
        InvalidRequest: a batch cannot hold it.
    """
    if not -INT64_MAX - 1 <= timestamp_ms <= INT64_MAX:
        raise InvalidRequest(f"timestamp is {timestamp_ms}; give ms since 1970-01-01 UTC, or -1 for none")
    return timestamp_ms


def from_b64(text: str | bytes, name: str) -> bytes:
    """Decode the base64 of the field ``name``. Raises ``InvalidRequest``."""
    try:
        return pybase64.b64decode(text, validate=True)
    except ValueError as error:
        raise InvalidRequest(
            f"{name} is not valid base64; give A-Z, a-z, 0-9, + and / alone, and = at the end up to a multiple of"
            " four characters"
        ) from error


def record_out(partition: int, record: RecordView, *, parse_values: bool) -> RecordOut:
    """Encode a stored record; with ``parse_values`` a value that is valid JSON appears as JSON."""
    key = record.key
    shown = RecordOut(partition, record.offset, record.timestamp, None, headers=_NO_HEADERS_OUT)
    if key is not None:
        try:
            shown.key = key.decode()
        except UnicodeDecodeError:
            shown.key = UNSET
            shown.key_b64 = pybase64.b64encode_as_string(key)
    value = record.value
    if value is None:
        shown.value = None
    else:
        try:
            shown.value = value.decode()
        except UnicodeDecodeError:
            shown.value_b64 = pybase64.b64encode_as_string(value)
        else:
            if parse_values and is_json(value):
                shown.value = Raw(without_line_ends(value))
    if record.headers:
        shown.headers = [_header_out(name, content) for name, content in record.headers]
    return shown


class View(NamedTuple):
    """A record as it is shown."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def preview_out(partition: int, record: RecordView, *, bytes_max: int, headers_max: int) -> RecordOut:
    """Encode a preview of a stored record, as ``preview_of`` cuts it.

    ``value_bytes`` is the full size of the value. ``is_cut`` is present if anything was cut off.
    """
    cut = preview_of(record, bytes_max=bytes_max, headers_max=headers_max)
    shown = record_out(partition, cut, parse_values=False)
    if record.value is not None:
        shown.value_bytes = len(record.value)
    if cut is not record:
        shown.is_cut = True
    return shown


def preview_of(record: RecordView, *, bytes_max: int, headers_max: int) -> RecordView:
    """Cut the parts of a record to ``bytes_max``, and its headers to ``headers_max``.

    ``record`` itself if it has no more.
    """
    key, value, headers = record.key, record.value, record.headers
    is_cut = any(part is not None and len(part) > bytes_max for part in (key, value))
    if not is_cut and len(headers) <= headers_max and not any(len(h) > bytes_max for _, h in headers if h):
        return record
    return View(
        record.offset,
        record.timestamp,
        head_of(key, bytes_max),
        head_of(value, bytes_max),
        [(name, head_of(data, bytes_max)) for name, data in headers[:headers_max]],
    )


def head_of(data: bytes | None, size: int) -> bytes | None:
    """Return the first ``size`` bytes, or fewer, to end between two UTF-8 characters."""
    if data is None or len(data) <= size:
        return data
    end = size
    while end > size - 4 and end and data[end] & 0xC0 == 0x80:
        end -= 1
    return data[: end or size]


def _header_out(name: str, content: bytes | None) -> HeaderOut:
    if content is None:
        return HeaderOut(name, None)
    try:
        return HeaderOut(name, content.decode())
    except UnicodeDecodeError:
        return HeaderOut(name, value_b64=pybase64.b64encode_as_string(content))


def without_line_ends(text: bytes) -> bytes:
    """Return JSON as one line: a line end can only stand between its tokens."""
    return text.translate(None, b"\r\n") if b"\n" in text or b"\r" in text else text


def is_json(value: bytes) -> bool:
    """Return whether a value is valid JSON."""
    try:
        # Checked and not made: the objects of a value of 1 MiB would take 20 ms.
        _decode_raw(value)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _has_blank(text: bytes) -> bool:
    # Four searches for a byte take a fiftieth of the time of a regular expression in a large text.
    return b" " in text or b"\n" in text or b"\t" in text or b"\r" in text
