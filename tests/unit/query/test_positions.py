"""Offsets and times of requests are resolved."""

from __future__ import annotations

import pytest
from stele.wire.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

from app.query.positions import parse_time

NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("earliest", EARLIEST_TIMESTAMP),
        ("latest", LATEST_TIMESTAMP),
        ("-250ms", NOW_MS - 250),
        ("-2m", NOW_MS - 120_000),
        ("-1d", NOW_MS - 86_400_000),
        ("-999999999999d", 0),
        ("1970-01-01T00:01Z", 60_000),
        ("1970-01-01T00:01", 60_000),
        ("1970-01-01t01:01+01:00", 60_000),
        # An unescaped plus sign of a query string.
        ("1970-01-01T01:01 01:00", 60_000),
        ("1960-01-01T00:00Z", 0),
        ("1h", None),
        ("-1w", None),
        ("1970-01-01", None),
        ("", None),
    ],
)
def test_a_time_is_absolute_or_relative_to_now(text: str, expected_ms: int | None) -> None:
    assert parse_time(text, NOW_MS) == expected_ms
