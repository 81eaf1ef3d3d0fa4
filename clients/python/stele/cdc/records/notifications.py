"""Conversion of notifications to records. No I/O."""

from __future__ import annotations

import json
import uuid
from typing import Any, cast

from .events import EVENT_ID, Event, Headers


def notified(channel: str, payload: str, *, key_column: str) -> tuple[Event, Headers]:
    """Return the record and headers of a notification, with the payload as the value.

    If the payload is a JSON object, its field ``key_column`` is the key, and its fields
    ``operation`` (or ``op``) and ``event_id`` become headers. The defaults are the
    channel, ``notify`` and a random id.
    """
    fields: dict[str, Any] = {}
    try:
        parsed: Any = json.loads(payload)
    except (ValueError, RecursionError):
        parsed = None
    if isinstance(parsed, dict):
        fields = cast("dict[str, Any]", parsed)
    key = fields.get(key_column)
    # Without a key, notifications of a channel stay in order.
    text = channel if key is None else key if isinstance(key, str) else json.dumps(key, separators=(",", ":"))
    operation = str(fields.get("operation") or fields.get("op") or "notify")
    event_id = str(fields.get("event_id") or uuid.uuid4())
    headers: Headers = [
        ("channel", channel.encode()),
        ("operation", _bytes(operation)),
        (EVENT_ID, _bytes(event_id)),
    ]
    return Event(operation, _bytes(text), payload.encode()), headers


def _bytes(text: str) -> bytes:
    """Encode text of JSON, which may have surrogates that UTF-8 cannot encode."""
    return text.encode("utf-8", "backslashreplace")
