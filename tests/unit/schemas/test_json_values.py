"""The JSON form of what JSON has no type for: readable, and the same value again."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stele.schemas import json_values

LONGS = st.integers(-(2**63), 2**63 - 1)
UNITS = st.sampled_from([10**3, 10**6, 10**9])


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (json_values.show_timestamp(0, 1000), "1970-01-01T00:00:00Z"),
        (json_values.show_timestamp(-1, 1000), "1969-12-31T23:59:59.999Z"),
        (json_values.show_timestamp(1_700_000_000_500_000, 10**6), "2023-11-14T22:13:20.500Z"),
        (json_values.show_timestamp(1_700_000_000_500_001, 10**6), "2023-11-14T22:13:20.500001Z"),
        (json_values.show_timestamp(1, 10**9), "1970-01-01T00:00:00.000000001Z"),
        (json_values.show_timestamp(1, 10**9, zone=""), "1970-01-01T00:00:00.000000001"),
        (json_values.show_timestamp(-62_135_596_800_000, 1000), "0001-01-01T00:00:00Z"),
        (json_values.show_timestamp(-62_135_596_800_001, 1000), -62_135_596_800_001),
        (json_values.show_timestamp(253_402_300_799_999, 1000), "9999-12-31T23:59:59.999Z"),
        (json_values.show_timestamp(253_402_300_800_000, 1000), 253_402_300_800_000),
        (json_values.show_timestamp(2**63 - 1, 1000), 2**63 - 1),
        (json_values.show_date(0), "1970-01-01"),
        (json_values.show_date(-719_162), "0001-01-01"),
        (json_values.show_date(-719_163), -719_163),
        (json_values.show_date(2**31 - 1), 2**31 - 1),
        (json_values.show_time(36_000_123, 1000), "10:00:00.123"),
        (json_values.show_time(86_399_999, 1000), "23:59:59.999"),
        (json_values.show_time(86_400_000, 1000), 86_400_000),
        (json_values.show_time(-1, 1000), -1),
        (json_values.show_decimal(1230, 2), "12.30"),
        (json_values.show_decimal(-5, 3), "-0.005"),
        (json_values.show_decimal(-5, 0), "-5"),
        (json_values.show_decimal(0, 2), "0.00"),
        (json_values.show_duration(1, 2, 3004), "P1M2DT3.004S"),
        (json_values.show_duration(0, 0, 0), "P0M0DT0S"),
        (json_values.show_bytes(b"\xff\0"), "/wA="),
        (json_values.show_float(1.5), 1.5),
        (json_values.show_float(math.nan), "NaN"),
        (json_values.show_float(-math.inf), "-Infinity"),
        (json_values.show_uuid(bytes(range(16))), "00010203-0405-0607-0809-0a0b0c0d0e0f"),
    ],
)
def test_values_are_shown_in_the_standard_form(shown: Any, expected: Any) -> None:
    assert shown == expected


@pytest.mark.parametrize(
    ("parsed", "expected"),
    [
        (json_values.parse_timestamp("1970-01-01T01:00:00+01:00", 1000), 0),
        (json_values.parse_timestamp("1969-12-31T19:30:00-04:30", 1000), 0),
        (json_values.parse_timestamp("1970-01-01 00:00:00.5z", 1000), 500),
        (json_values.parse_timestamp("1970-01-01T00:00:00.500000000Z", 1000), 500),
        (json_values.parse_timestamp(1_700_000_000_000, 1000), 1_700_000_000_000),
        (json_values.parse_timestamp("1970-01-02T00:00:00", 1000, zone=""), 86_400_000),
        (json_values.parse_date(19_000), 19_000),
        (json_values.parse_time("00:00:01", 10**6), 10**6),
        (json_values.parse_decimal("5", 2), 500),
        (json_values.parse_decimal("-0.500", 1), -5),
        (json_values.parse_float(3), 3.0),
        (json_values.parse_duration("P2M"), (2, 0, 0)),
        (json_values.parse_duration("PT0.5S"), (0, 0, 500)),
    ],
)
def test_what_is_certain_is_read_in_other_forms_too(parsed: Any, expected: Any) -> None:
    assert parsed == expected


def timestamp(value: Any) -> int:
    return json_values.parse_timestamp(value, 1000)


def local_timestamp(value: Any) -> int:
    return json_values.parse_timestamp(value, 1000, zone="")


def time(value: Any) -> int:
    return json_values.parse_time(value, 1000)


def decimal(value: Any) -> int:
    return json_values.parse_decimal(value, 2)


REFUSED: dict[Callable[[Any], Any], list[Any]] = {
    timestamp: [
        *("", "now", "1970-01-01", "1970-01-01T00:00:00", "1970-01-01T00:00Z", "1970-02-30T00:00:00Z"),
        *(
            "0000-01-01T00:00:00Z",
            "1970-01-01T24:00:00Z",
            "1970-01-01T00:00:60Z",
            "1970-01-01T00:00:00.0001Z",
        ),
        *(
            "1970-01-01T00:00:00,5Z",
            "1970-01-01T00:00:00+24:00",
            "１970-01-01T00:00:00Z",
            "1970-01-01T00:00:00Z\n",
        ),
        *(1.5, True, None),
    ],
    local_timestamp: ["1970-01-01T00:00:00Z", "1970-01-01T00:00:00+00:00"],
    json_values.parse_date: ["70-01-01", "1970-1-1", "19700101", "1970-W01-1", "1970-02-29", "", None, 1.0],
    time: ["1:00:00", "00:60:00", "24:00:00", "00:00:60", None],
    decimal: ["", "1.234", "1e3", "+1", ".5", "1.", "NaN", " 1", "1_0", 1, 1.5, None, "1" * 5000],
    json_values.parse_bytes: ["a", "YQ", "YQ==\n", "_w==", None, 1, "é"],
    json_values.parse_float: ["nan", "1.5", "", None, True, [], 10**400],
    json_values.parse_duration: ["P", "PT", "P1Y", "P1MT", "1M", "P99999999999M", "P4294967296M", None],
    json_values.check_uuid: ["", "0" * 32, "{00010203-0405-0607-0809-0a0b0c0d0e0f}", None],
}


@pytest.mark.parametrize(
    ("parse", "value"), [(parse, value) for parse, values in REFUSED.items() for value in values]
)
def test_what_is_no_such_value_or_would_be_rounded_is_refused(
    parse: Callable[[Any], Any], value: Any
) -> None:
    with pytest.raises(ValueError) as raised:
        parse(value)
    assert str(raised.value)


@given(LONGS, UNITS, st.sampled_from(["Z", ""]))
def test_a_timestamp_comes_back(units: int, per_second: int, zone: str) -> None:
    shown = json_values.show_timestamp(units, per_second, zone)
    assert json_values.parse_timestamp(shown, per_second, zone) == units


@given(LONGS | st.integers(0, 86_400 * 10**9), UNITS)
def test_a_time_of_day_comes_back(units: int, per_second: int) -> None:
    assert json_values.parse_time(json_values.show_time(units, per_second), per_second) == units


@given(st.integers(-(2**31), 2**31 - 1) | st.integers(-800_000, 3_000_000))
def test_a_date_comes_back(days: int) -> None:
    assert json_values.parse_date(json_values.show_date(days)) == days


@given(st.integers(-(10**60), 10**60), st.integers(0, 60))
def test_a_decimal_comes_back(unscaled: int, scale: int) -> None:
    assert json_values.parse_decimal(json_values.show_decimal(unscaled, scale), scale) == unscaled


@given(*[st.integers(0, 2**32 - 1)] * 3)
def test_a_duration_comes_back(months: int, days: int, milliseconds: int) -> None:
    parts = months, days, milliseconds
    assert json_values.parse_duration(json_values.show_duration(*parts)) == parts


@given(st.floats(allow_nan=False))
def test_a_float_comes_back(number: float) -> None:
    parsed = json_values.parse_float(json_values.show_float(number))
    assert math.copysign(1, parsed) == math.copysign(1, number)
    assert parsed == number


def test_nan_comes_back() -> None:
    assert math.isnan(json_values.parse_float("NaN"))


@given(st.binary(max_size=100), st.uuids())
def test_bytes_and_uuids_come_back(data: bytes, number: uuid.UUID) -> None:
    assert json_values.parse_bytes(json_values.show_bytes(data)) == data
    assert json_values.parse_uuid(json_values.show_uuid(number.bytes)) == number.bytes
