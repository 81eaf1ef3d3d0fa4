"""Parses what users write: whole numbers, booleans, durations and times.

Each notation has one parser, so that a text means the same in a query, a body, a header, an option of a command and
an option of Spark. A parser returns None for a text that is not of its notation; the caller names the parameter and
what it accepts. Values of configurations follow Apache Kafka's rules instead (``app/storage/config_types.py``).
"""

from __future__ import annotations

import calendar
import re

INT64_MAX = 2**63 - 1
# What a text of ``parse_duration_ms`` and ``parse_time`` may end in.
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"([0-9]{1,12}) ?(ms|s|min|m|h|d)")
_WHOLE = re.compile(r"[0-9]{1,19}")
# RFC 3339, but seconds and the zone may be left out. The "+" of a zone arrives as a blank in a query, unless the
# client escapes it.
_TIME = re.compile(
    r"(?P<year>[0-9]{4})-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})[Tt ](?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})"
    r"(:(?P<second>[0-9]{2})([.,](?P<fraction>[0-9]{1,9}))?)?"
    r"([Zz]|(?P<sign>[+\- ])(?P<zone_hours>[0-9]{2}):?(?P<zone_minutes>[0-9]{2}))?"
)


def parse_whole(text: str, maximum: int = INT64_MAX) -> int | None:
    """Parse ASCII digits without a sign, up to ``maximum``."""
    if not _WHOLE.fullmatch(text):
        return None
    number = int(text)
    return number if number <= maximum else None


def parse_signed(text: str) -> int | None:
    """Parse a whole number of 64 bits; ``-`` may precede its digits."""
    if not text.startswith("-"):
        return parse_whole(text)
    number = parse_whole(text[1:], INT64_MAX + 1)
    return None if number is None else -number


def parse_boolean(text: str) -> bool | None:
    """Parse ``true`` or ``false``, in any case."""
    return {"true": True, "false": False}.get(text.lower())


def parse_duration_ms(text: str) -> int | None:
    """Parse ``500ms``, ``30s``, ``15m`` (or ``15min``), ``1h`` or ``2d``.

    In this case only: ``M`` is a month elsewhere.
    """
    duration = _DURATION.fullmatch(text)
    return None if duration is None else int(duration[1]) * _UNIT_MS[duration[2]]


def parse_time(text: str, now_ms: int) -> int | None:
    """Parse a time ago (``-1h``) or RFC 3339; return ms since 1970-01-01 UTC.

    A time without a zone is in UTC, wherever it is parsed. A time before 1970 stands for its begin, because negative
    numbers have meanings of their own in requests.
    """
    if text.startswith("-"):
        ago_ms = parse_duration_ms(text[1:])
        return None if ago_ms is None else max(0, now_ms - ago_ms)
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second, zone_hours, zone_minutes = (
        int(match[name] or 0)
        for name in ("year", "month", "day", "hour", "minute", "second", "zone_hours", "zone_minutes")
    )
    if year < 1 or not 1 <= month <= 12 or not 1 <= day <= calendar.monthrange(year, month)[1]:
        return None
    if hour > 23 or zone_hours > 23 or max(minute, second, zone_minutes) > 59:
        return None
    zone_s = (zone_hours * 60 + zone_minutes) * 60
    seconds = calendar.timegm((year, month, day, hour, minute, second))
    seconds += zone_s if match["sign"] == "-" else -zone_s
    return max(0, seconds * 1000 + int((match["fraction"] or "")[:3].ljust(3, "0")))
