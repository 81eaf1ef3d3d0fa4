"""Filters select the right records, and invalid ones are refused."""

from __future__ import annotations

import asyncio
import json
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import InvalidRequest
from app.query import filters
from app.query.filters import CONDITIONS_MAX, JSON_BYTES_MAX, make_filter
from app.work_budget import WorkBudget


class Record(NamedTuple):
    offset: int = 0
    timestamp: int = 0
    key: bytes | None = None
    value: bytes | None = None
    headers: list[tuple[str, bytes | None]] = []  # noqa: RUF012 (never changed)


FLIGHT = Record(
    key=b"N14228",
    value=b'{"carrier":"UA","dep_delay":62,"ratio":1.5,"late":true,"none":null,"legs":[{"from":"EWR"}]}',
    headers=[("source", b"demo"), ("source", b"again"), ("empty", None)],
)


@pytest.mark.parametrize(
    ("field", "text", "holds"),
    [
        ("key", "142", True),
        ("key", "=N14228", True),
        ("key", "=142", False),
        ("value", "EWR", True),
        ("value", "=EWR", False),
        ("header", "source", True),
        ("header", "missing", False),
        ("header", "source:aga", True),
        ("header", "source:=aga", False),
        ("header", "source:=again", True),
        ("header", "empty:", False),
        ("json", "carrier", True),
        ("json", "missing", False),
        ("json", "none", True),
        ("json", "none == null", True),
        ("json", "carrier == UA", True),
        ("json", 'carrier == "UA"', True),
        ("json", "carrier != AA", True),
        ("json", "missing != AA", False),
        ("json", "carrier ~ U", True),
        ("json", "dep_delay > 60", True),
        ("json", "dep_delay >= 62.0", True),
        ("json", "dep_delay < 62", False),
        ("json", "dep_delay <= 62", True),
        ("json", "ratio > 1", True),
        ("json", "dep_delay > abc", False),
        ("json", "late == true", True),
        ("json", "late == 1", False),
        ("json", "late > 0", False),
        ("json", "$.legs[0].from == EWR", True),
        ("json", "legs[1].from", False),
        ("json", "legs.from", False),
        ("json", "legs ~ EWR", True),
        ("json", "dep_delay ~ 6", True),
        ("json", "  dep_delay>60  ", True),
        ("json", "carrier==UA", True),
        ("json", "carrier ==", False),
    ],
)
def test_a_condition_holds_or_not(field: str, text: str, holds: bool) -> None:
    conditions: dict[str, Any] = {field: [text]}
    assert make_filter(**conditions).matches(FLIGHT) is holds


def test_all_conditions_must_hold() -> None:
    assert make_filter(key=["N1"], json=["dep_delay > 60", "carrier == UA"]).matches(FLIGHT)
    assert not make_filter(key=["N1"], json=["dep_delay > 60", "carrier == AA"]).matches(FLIGHT)


@pytest.mark.parametrize("value", [None, b"", b"not json", b"\xff\xfe", b"[" * 100_000, b"1", b"null"])
def test_values_of_another_kind_do_not_match_and_raise_nothing(value: bytes | None) -> None:
    assert not make_filter(json=["carrier == UA"]).matches(Record(value=value))


def test_a_value_is_decoded_once_however_many_conditions_look_into_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decoded: list[bytes] = []

    def counted(value: bytes) -> Any:
        decoded.append(value)
        return json.loads(value)

    wanted = make_filter(json=[f"legs[0].n{number} != 1" for number in range(8)] + ["carrier"] * 8)
    monkeypatch.setattr(filters, "_decode", counted)
    value = json.dumps({"carrier": "UA", "legs": [{f"n{number}": 0 for number in range(8)}]}).encode()
    assert wanted.matches(Record(value=value))
    assert decoded == [value]


async def test_many_large_values_are_looked_into_in_many_turns_of_the_loop() -> None:
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(count_turns())
    value = b'{"a":"%s"}' % (b"x" * 300_000)
    matching = await make_filter(json=["a ~ x"]).matching([Record(value=value)] * 40, WorkBudget())
    counting.cancel()
    assert len(matching) == 40
    # Each is more than a turn may have.
    assert turns >= 39


def test_a_value_that_is_too_large_to_look_into_is_counted() -> None:
    wanted = make_filter(json=["a == 1"])
    assert not wanted.matches(Record(value=b'{"a":1}' + b" " * JSON_BYTES_MAX))
    assert wanted.too_large == 1


@pytest.mark.parametrize(
    "texts",
    [
        ["[[ == 1"],
        ["a..b"],
        ["> 60"],
        [" "],
        [".".join(["a"] * 40)],
        ["a > true"],
        ["a > [1]"],
        ["x" * 1001],
        ["a"] * (CONDITIONS_MAX + 1),
    ],
)
def test_a_condition_that_makes_no_sense_is_refused(texts: list[str]) -> None:
    with pytest.raises(InvalidRequest):
        make_filter(json=texts)


@given(st.text(max_size=80), st.binary(max_size=80))
def test_no_text_and_no_value_breaks_a_filter(text: str, value: bytes) -> None:
    try:
        wanted = make_filter(key=[text], value=[text], header=[text], json=[text])
    except InvalidRequest:
        return
    wanted.matches(Record(key=value, value=value, headers=[("h", value)]))
