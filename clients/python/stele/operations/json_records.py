"""Records as JSON in the form of the HTTP API, lossless for any bytes.

UTF-8 is sent as ``key``/``value``, other bytes as ``key_b64``/``value_b64``.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from ..records import OutgoingRecord, Record

NDJSON = "application/x-ndjson"
# Of requests that read and write records: deserializers need the bytes, and serializers have made them.
AS_BYTES = {"decode": "raw"}
FROM_BYTES = {"encode": "raw"}

_SHORT_BYTES = 1024

_encoder = msgspec.json.Encoder()


def encode_ndjson(records: Iterable[OutgoingRecord]) -> bytes:
    return _encoder.encode_lines([_as_json(record) for record in records])


def topic_record_as_json(topic: str, record: OutgoingRecord, partition: int | None) -> dict[str, Any]:
    """Return a record that names its topic, for a transaction."""
    line = {"topic": topic, **_as_json(record)}
    if partition is not None:
        line["partition"] = partition
    return line


def _as_json(record: OutgoingRecord) -> dict[str, Any]:
    line: dict[str, Any] = {"timestamp": record.timestamp}
    if record.key is not None:
        _put(line, "key", record.key)
    if record.value is None:
        line["value"] = None
    else:
        _put(line, "value", record.value)
    if record.headers:
        line["headers"] = _headers(record.headers)
    return line


def _headers(pairs: Iterable[tuple[str, bytes | None]]) -> list[dict[str, Any]]:
    headers: list[dict[str, Any]] = []
    for name, value in pairs:
        header: dict[str, Any] = {"key": name}
        if value is None:
            header["value"] = None
        else:
            _put(header, "value", value)
        headers.append(header)
    return headers


def _put(target: dict[str, Any], name: str, data: bytes) -> None:
    try:
        text = _encoder.encode(data.decode())
    except UnicodeDecodeError:
        target[f"{name}_b64"] = b64encode(data).decode()
        return
    # A control character takes six bytes in JSON; base64 grows by a third at most.
    if len(text) > _SHORT_BYTES and len(text) > len(data) * 4 // 3:
        target[f"{name}_b64"] = b64encode(data).decode()
    else:
        target[name] = msgspec.Raw(text)


def record_as_json(record: Record[bytes]) -> dict[str, Any]:
    """Return a stored record in the form of an HTTP response."""
    line: dict[str, Any] = {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
    }
    if record.key is None:
        line["key"] = None
    else:
        _put(line, "key", record.key)
    if record.value is None:
        line["value"] = None
    else:
        _put(line, "value", record.value)
    line["headers"] = _headers(record.headers)
    return line


def record_from_json(topic: str, document: Mapping[str, Any]) -> Record[bytes]:
    """Return the record of an HTTP response.

    Raises KeyError, TypeError or ValueError if it is none.
    """
    return Record(
        topic,
        int(document["partition"]),
        int(document["offset"]),
        int(document["timestamp"]),
        _bytes(document, "key"),
        _bytes(document, "value"),
        tuple((str(header["key"]), _bytes(header, "value")) for header in document["headers"]),
    )


def _bytes(document: Mapping[str, Any], name: str) -> bytes | None:
    encoded = document.get(f"{name}_b64")
    if encoded is not None:
        return b64decode(encoded)
    text = document[name]
    return None if text is None else str(text).encode()
