"""Resolve offsets and times of requests: ``42``, ``earliest``, ``-1h``, RFC 3339."""

from __future__ import annotations

from stele.wire.isolation_level import IsolationLevel
from stele.wire.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from stele.wire.notation import parse_time, parse_whole

from ..broker.broker import Broker
from ..errors import InvalidRequest


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
    given = parse_whole(text)
    if given is not None:
        return given
    at = position_at(text, broker.now_ms())
    if at is None:
        raise InvalidRequest(
            f"{name} is {text[:60]!r}; give an offset, earliest, latest, a time like 2026-11-20T10:00Z, "
            "or a time ago like -1h (ms, s, m, h, d)"
        )
    offset, _, _ = await broker.list_offset(topic, partition, at, isolation=isolation)
    if offset < 0:
        offset, _, _ = await broker.list_offset(topic, partition, LATEST_TIMESTAMP, isolation=isolation)
    return offset


def position_at(text: str, now_ms: int) -> int | None:
    """Parse ``earliest``, ``latest``, or a time as ``parse_time`` does.

    Returns ms since 1970-01-01 UTC, ``EARLIEST_TIMESTAMP`` or ``LATEST_TIMESTAMP``;
    None if ``text`` is none of these.
    """
    if text == "earliest":
        return EARLIEST_TIMESTAMP
    if text == "latest":
        return LATEST_TIMESTAMP
    return parse_time(text, now_ms)
