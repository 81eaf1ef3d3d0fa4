"""Resolve offsets and times of requests: ``42``, ``earliest``, ``-1h``, RFC 3339."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from stele.wire.isolation_level import IsolationLevel
from stele.wire.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

from ..broker.broker import Broker
from ..errors import InvalidRequest

_RELATIVE = re.compile(r"-(\d{1,12})(ms|s|m|h|d)")
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


async def offset_at(
    broker: Broker,
    topic: str,
    partition: int,
    text: str,
    *,
    isolation: IsolationLevel,
    name: str = "from",
) -> int:
    """Return the offset that ``text``, the value of parameter ``name``, stands for.

    ``text`` is a number, ``earliest``, ``latest``, ``-1h`` or RFC 3339. A time after
    the last record stands for ``latest``: the last stable offset with READ_COMMITTED,
    otherwise the high watermark.

    Raises:
        InvalidRequest: ``text`` is none of these.
    """
    if text.isascii() and text.isdigit() and len(text) < 20:
        return int(text)
    at = parse_time(text, broker.now_ms())
    if at is None:
        raise InvalidRequest(
            f"{name} is {text[:60]!r}; give an offset, earliest, latest, a time like 2026-11-20T10:00Z, "
            "or a time ago like -1h (ms, s, m, h, d)"
        )
    offset, _, _ = await broker.list_offset(topic, partition, at, isolation=isolation)
    if offset < 0:
        offset, _, _ = await broker.list_offset(topic, partition, LATEST_TIMESTAMP, isolation=isolation)
    return offset


def parse_time(text: str, now_ms: int) -> int | None:
    """Parse ``earliest``, ``latest``, ``-1h`` (ms, s, m, h, d) or RFC 3339.

    Returns ms since 1970-01-01 UTC, ``EARLIEST_TIMESTAMP`` or ``LATEST_TIMESTAMP``;
    None if ``text`` is none of these.
    """
    if text == "earliest":
        return EARLIEST_TIMESTAMP
    if text == "latest":
        return LATEST_TIMESTAMP
    relative = _RELATIVE.fullmatch(text)
    if relative:
        return max(0, now_ms - int(relative[1]) * _UNIT_MS[relative[2]])
    # The "+" of a time zone arrives as a blank unless the client escapes it.
    moment = text.replace(" ", "+") if text[10:11] in ("T", "t") else text
    try:
        parsed = datetime.fromisoformat(moment)
    except ValueError:
        return None
    if len(moment) < len("2026-11-20T10:00") or moment[10] not in "Tt ":
        return None
    if parsed.tzinfo is None:
        parsed = parsed.replace(tzinfo=UTC)
    return max(0, (parsed - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1))
