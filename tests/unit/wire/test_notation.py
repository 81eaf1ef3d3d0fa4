"""Each notation has one meaning in every parser."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone

import click
import pytest
from stele.calls import parse_at
from stele.commands import consume
from stele.records import to_timestamp_ms
from stele.spark.options import OptionError, Use
from stele.spark.parsing import parse_read_options
from stele.wire.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from stele.wire.notation import (
    INT64_MAX,
    parse_boolean,
    parse_duration_ms,
    parse_signed,
    parse_time,
    parse_whole,
)

from app.query.positions import position_at

NOW_MS = 1_800_000_000_000
TIMES: dict[str, int | None] = {
    "-250ms": NOW_MS - 250,
    "-2m": NOW_MS - 120_000,
    "-2min": NOW_MS - 120_000,
    "-1d": NOW_MS - 86_400_000,
    "-999999999999d": 0,
    "1970-01-01T00:01Z": 60_000,
    # Without a zone it is in UTC, and not that of a machine.
    "1970-01-01T00:01": 60_000,
    "1970-01-01 00:01": 60_000,
    "1970-01-01t01:01:00.0019+01:00": 60_001,
    "1970-01-01T00:01:00,5z": 60_500,
    # An unescaped plus sign of a query string.
    "1970-01-01T01:01 01:00": 60_000,
    "1969-12-31T23:59:59.999Z": 0,
    "9999-12-31T23:59:59.999Z": 253_402_300_799_999,
    # A month has no length.
    "-1M": None,
    "-1H": None,
    "-1w": None,
    "-\u0661h": None,
    "-1h\n": None,
    "-9999999999999d": None,
    "1h": None,
    "-": None,
    "1970-01-01": None,
    "19700101T0001": None,
    "1970-W01-4T00:01": None,
    "1970-13-01T00:00Z": None,
    "1970-01-01T00:60Z": None,
    "1970-01-01T00:01+99:00": None,
    "yesterday": None,
    "": None,
}


@pytest.fixture
def in_another_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    monkeypatch.setattr(consume, "now_ms", lambda: NOW_MS)


@pytest.mark.parametrize(("text", "expected_ms"), TIMES.items())
@pytest.mark.usefixtures("in_another_zone")
def test_a_time_is_the_same_over_every_protocol(text: str, expected_ms: int | None) -> None:
    assert parse_time(text, NOW_MS) == expected_ms
    assert position_at(text, NOW_MS) == expected_ms
    if expected_ms is None:
        with pytest.raises(click.BadParameter):
            consume.parse_start(text)
    else:
        started = consume.parse_start(text)
        assert isinstance(started, datetime)
        assert parse_at(started) == expected_ms


def test_the_ends_of_a_log_have_names() -> None:
    assert (position_at("earliest", NOW_MS), position_at("latest", NOW_MS)) == (
        EARLIEST_TIMESTAMP,
        LATEST_TIMESTAMP,
    )
    assert position_at("Latest", NOW_MS) is None


def test_a_time_of_a_program_is_exact_to_the_millisecond() -> None:
    for ms in (1_763_664_000_123, 1_763_664_000_001, 1_700_000_000_999, 1):
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
        assert to_timestamp_ms(moment) == parse_at(moment) == ms
        assert parse_at(moment.astimezone(timezone(timedelta(hours=9)))) == ms
    assert to_timestamp_ms(datetime(1969, 12, 31, 23, 59, 59, 999_500, tzinfo=UTC)) == -1
    assert parse_at(datetime(1960, 1, 1, tzinfo=UTC)) == 0
    for ms in (-1, 253_402_300_800_000):
        with pytest.raises(ValueError, match="is not ms since 1970"):
            parse_at(ms)


def test_the_calendar_is_that_of_python() -> None:
    for day in range(0, 9999 * 365, 1009):
        moment = datetime(1, 1, 1, 23, 59, 58, 123_000, tzinfo=UTC) + timedelta(days=day)
        for text in (moment.isoformat(), moment.astimezone(timezone(timedelta(hours=-5))).isoformat()):
            assert parse_time(text, NOW_MS) == max(0, to_timestamp_ms(moment))
    assert parse_time("2000-02-29T00:00Z", NOW_MS) == 951_782_400_000
    none = ("1900-02-29", "2001-02-29", "2001-04-31", "2001-00-01", "2001-01-00", "0000-01-01")
    assert [parse_time(f"{date}T00:00Z", NOW_MS) for date in none] == [None] * len(none)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("007", 7),
        (str(INT64_MAX), INT64_MAX),
        (str(INT64_MAX + 1), None),
        ("9" * 5000, None),
        ("0" * 5000, None),
        ("", None),
        ("+5", None),
        (" 5", None),
        ("5\n", None),
        ("5.0", None),
        ("1_000", None),
        ("\u0663", None),
        ("\xb2", None),
    ],
)
def test_a_whole_number_has_ascii_digits_only(text: str, expected: int | None) -> None:
    assert parse_whole(text) == parse_signed(text) == expected
    minus = None if expected is None else -expected
    assert parse_signed(f"-{text}") == (-INT64_MAX - 1 if text == str(INT64_MAX + 1) else minus)
    assert parse_whole(f"-{text}") is None


def test_a_boolean_is_true_or_false_in_any_case() -> None:
    texts = ("true", "True", "FALSE", "1", "yes", "", " true")
    assert [parse_boolean(text) for text in texts] == [True, True, False, None, None, None, None]


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [("500ms", 500), ("30s", 30_000), ("15 m", 900_000), ("15min", 900_000), ("1h", 3_600_000), ("1M", None), ("1.5h", None), ("-1h", None), ("", None)],
)  # fmt: skip
def test_an_option_of_spark_has_the_durations_of_the_others(text: str, expected_ms: int | None) -> None:
    def trigger_delay() -> int:
        options = {"url": "stele://h:1", "subscribe": "t", "maxTriggerDelay": text}
        return parse_read_options(options, Use.STREAM_READ).max_trigger_delay_ms

    assert parse_duration_ms(text) == expected_ms
    if expected_ms is None:
        refused(trigger_delay)
    else:
        assert trigger_delay() == expected_ms


def refused(parse: Callable[[], object]) -> None:
    with pytest.raises(OptionError):
        parse()
