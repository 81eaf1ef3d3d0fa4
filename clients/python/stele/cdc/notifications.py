"""NOTIFY → records. No I/O."""

from __future__ import annotations

import json
import uuid
from typing import Any, cast

from .events import EVENT_ID, Event, Headers


def notified(channel: str, payload: str, *, key_column: str) -> tuple[Event, Headers]:
    """The record of a notification: its payload as it is, keyed by a field of it if it is a JSON object.

    ``operation`` and ``event_id`` of the object become headers; else ``notify``, and an id of its own.
    """
    found: dict[str, Any] = {}
    try:
        parsed: Any = json.loads(payload)
    except (ValueError, RecursionError):
        parsed = None
    if isinstance(parsed, dict):
        found = cast("dict[str, Any]", parsed)
    key = found.get(key_column)
    # Without a key of its own, a notification keeps its place among those of its channel.
    text = channel if key is None else key if isinstance(key, str) else json.dumps(key, separators=(",", ":"))
    operation = str(found.get("operation") or found.get("op") or "notify")
    event_id = str(found.get("event_id") or uuid.uuid4())
    headers: Headers = [
        ("channel", channel.encode()),
        ("operation", operation.encode()),
        (EVENT_ID, event_id.encode()),
    ]
    return Event(operation, text.encode(), payload.encode()), headers
