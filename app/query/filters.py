"""Which records a search or a tail shows: by key, value, header and path into JSON, decided on the server.

All conditions must hold. A text is found anywhere in the bytes; with ``=`` before it, it must be all of them::

    key=N142   key==N14228   header=source   header=source:demo   header=source:=demo
    json=dep_delay > 60   json=carrier == "UA"   json=legs[0].from ~ EW   json=tailnum

There are no regular expressions: one that does not end would hold the loop that everybody shares.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from stele.wire.record_batch import RecordView

from ..errors import InvalidRequest
from ..work_budget import WorkBudget

CONDITIONS_MAX = 16
# Decoding JSON is work of the loop that everybody shares: some 5 ms for this much.
JSON_BYTES_MAX = 1024 * 1024
_STEPS_MAX = 32
_TEXT_CHARACTERS_MAX = 1000

_Condition = Callable[[RecordView], bool]
# On a value that was decoded: once, however many look into it.
_JsonCondition = Callable[[Any], bool]

_SIGN = re.compile(r"==|!=|>=|<=|>|<|~")
_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d{1,9})\]")
_SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_MISSING = object()
_decode = msgspec.json.Decoder().decode


class Filter:
    """Conditions on a record. ``too_large`` counts values that were not looked into for their size."""

    def __init__(
        self, conditions: Sequence[_Condition] = (), json_conditions: Sequence[_JsonCondition] = ()
    ) -> None:
        self._conditions = conditions
        self._json_conditions = json_conditions
        # Of one record, in records that are only decoded.
        self._weight = len(json_conditions) / 4
        self.too_large = 0

    @property
    def is_empty(self) -> bool:
        return not (self._conditions or self._json_conditions)

    def matches(self, record: RecordView) -> bool:
        if not all(condition(record) for condition in self._conditions):
            return False
        return not self._json_conditions or self._holds_json(record.value)

    def _holds_json(self, value: bytes | None) -> bool:
        if value is None:
            return False
        if len(value) > JSON_BYTES_MAX:
            self.too_large += 1
            return False
        try:
            found = _decode(value)
        except (msgspec.DecodeError, RecursionError):
            return False
        return all(condition(found) for condition in self._json_conditions)

    async def matching(self, records: list[RecordView], turn: WorkBudget) -> list[RecordView]:
        """Those of ``records`` that match, found in as many turns of the loop as their sizes ask for."""
        if self.is_empty:
            return records
        found: list[RecordView] = []
        for record in records:
            if self.matches(record):
                found.append(record)
            if turn.is_over(len(record.value or b""), self._weight):
                await turn.pause()
        return found


def make_filter(
    *,
    key: Sequence[str] = (),
    value: Sequence[str] = (),
    header: Sequence[str] = (),
    json: Sequence[str] = (),
) -> Filter:
    """A filter from the texts of a request. Raises ``InvalidRequest`` with what is wrong with one."""
    given = [*key, *value, *header, *json]
    if len(given) > CONDITIONS_MAX:
        raise InvalidRequest(f"there are {len(given)} conditions; give {CONDITIONS_MAX} at most")
    for text in given:
        if len(text) > _TEXT_CHARACTERS_MAX:
            raise InvalidRequest(
                f"a condition has {len(text)} characters; it may have {_TEXT_CHARACTERS_MAX}"
            )
    return Filter(
        [
            *(_on_key(text) for text in key if text),
            *(_on_value(text) for text in value if text),
            *(_on_header(text) for text in header if text),
        ],
        [_on_json(text) for text in json if text],
    )


def _bytes_test(text: str) -> Callable[[bytes | None], bool]:
    if text.startswith("="):
        exact = text[1:].encode()
        return lambda data: data == exact
    wanted = text.encode()
    return lambda data: data is not None and wanted in data


def _on_key(text: str) -> _Condition:
    test = _bytes_test(text)
    return lambda record: test(record.key)


def _on_value(text: str) -> _Condition:
    test = _bytes_test(text)
    return lambda record: test(record.value)


def _on_header(text: str) -> _Condition:
    name, colon, wanted = text.partition(":")
    if not colon:
        return lambda record: any(header == name for header, _ in record.headers)
    test = _bytes_test(wanted)
    return lambda record: any(header == name and test(data) for header, data in record.headers)


def _steps(path: str) -> list[str | int]:
    text = path.removeprefix("$").removeprefix(".")
    steps: list[str | int] = []
    position = 0
    while position < len(text):
        step = _STEP.match(text, position)
        if step is None or len(steps) == _STEPS_MAX:
            raise InvalidRequest(
                f"json path {path[:60]!r} is not like carrier, legs[0].from or $.a.b, of {_STEPS_MAX} steps at most"
            )
        steps.append(step[1] if step[2] is None else int(step[2]))
        position = step.end()
    return steps


def _on_json(text: str) -> _JsonCondition:
    # One search for the sign: a pattern for all of it would try each blank as the end of the path.
    signed = _SIGN.search(text)
    sign = None if signed is None else signed[0]
    path = (text if signed is None else text[: signed.start()]).strip()
    wanted_text = "" if signed is None else text[signed.end() :].strip()
    if not path:
        raise InvalidRequest(f"json condition {text[:60]!r} is not like dep_delay > 60; it has no path")
    steps = _steps(path)
    try:
        wanted: Any = None if sign is None else _decode(wanted_text.encode())
    except (msgspec.DecodeError, RecursionError):
        # A word without quotes means itself.
        wanted = wanted_text
    if sign in _SIGNS and (isinstance(wanted, bool) or not isinstance(wanted, int | float | str)):
        raise InvalidRequest(
            f"json condition {text[:60]!r} compares with {wanted_text[:20]!r}; give a number or a text"
        )

    def condition(found: Any) -> bool:
        for step in steps:
            found = _follow(found, step)
            if found is _MISSING:
                return False
        return _holds(found, sign, wanted, wanted_text)

    return condition


def _follow(found: Any, step: str | int) -> Any:
    if isinstance(found, dict):
        return found.get(str(step), _MISSING)  # pyright: ignore[reportUnknownVariableType]
    if isinstance(found, list) and isinstance(step, int) and step < len(found):  # pyright: ignore[reportUnknownArgumentType]
        return found[step]  # pyright: ignore[reportUnknownVariableType]
    return _MISSING


def _holds(found: Any, sign: str | None, wanted: Any, wanted_text: str) -> bool:
    if sign is None:
        return True
    if sign == "~":
        text = found if isinstance(found, str) else msgspec.json.encode(found).decode()
        return (wanted if isinstance(wanted, str) else wanted_text) in text
    if sign in ("==", "!="):
        # JSON knows no difference between 1 and 1.0, but Python none between 1 and true.
        is_equal = found == wanted and isinstance(found, bool) == isinstance(wanted, bool)
        return is_equal == (sign == "==")
    if isinstance(found, bool) or isinstance(found, str) != isinstance(wanted, str):
        return False
    return isinstance(found, int | float | str) and _SIGNS[sign](found, wanted)
