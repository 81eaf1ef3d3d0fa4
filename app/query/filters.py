"""Choose the records of a search or a tail by key, value, header and JSON path.

All conditions must hold. A text matches anywhere in the bytes; with ``=`` in front it
must equal all of them::

    key=N142   key==N14228   header=source   header=source:demo   header=source:=demo
    json=dep_delay > 60   json=carrier == "UA"   json=legs[0].from ~ EW   json=tailnum

Regular expressions are not supported, because a slow one would block the event loop. Texts are looked for in the bytes
that are stored; JSON conditions look at what the schema of a value says, if it names one.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any

import msgspec
from stele.wire.record_batch import RecordView

from ..errors import InvalidRequest
from ..registry.values import DecodedRecord, TopicValues
from ..work_budget import WorkBudget

CONDITIONS_MAX = 16
# Decoding this many bytes of JSON blocks the event loop for about 5 ms.
JSON_BYTES_MAX = 1024 * 1024
_STEPS_MAX = 32
_TEXT_CHARACTERS_MAX = 1000

_Condition = Callable[[RecordView], bool]
# Takes the decoded value, which all JSON conditions share.
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
    """Conditions on a record.

    ``values`` decodes what names a schema, for the JSON conditions. ``too_large`` counts values that these skipped
    because of their size.
    """

    def __init__(
        self,
        conditions: Sequence[_Condition] = (),
        json_conditions: Sequence[_JsonCondition] = (),
        values: TopicValues | None = None,
    ) -> None:
        self._conditions = conditions
        self._json_conditions = json_conditions
        self._values = values if json_conditions else None
        # Cost of checking one record, in units of decoding one.
        self._weight = len(json_conditions) / 4
        self.too_large = 0

    @property
    def is_empty(self) -> bool:
        return not (self._conditions or self._json_conditions)

    def matches(self, record: RecordView, decoded: DecodedRecord | None = None) -> bool:
        """Return whether all conditions hold for ``record``, of which the schemas say what is ``decoded``."""
        if not all(condition(record) for condition in self._conditions):
            return False
        if not self._json_conditions:
            return True
        part = None if decoded is None else decoded.value
        return self._holds_json(record.value if part is None else part.text)

    def _holds_json(self, value: bytes | None) -> bool:
        if value is None:
            return False
        if len(value) > JSON_BYTES_MAX:
            self.too_large += 1
            return False
        try:
            document = _decode(value)
        except (msgspec.DecodeError, RecursionError):
            return False
        return all(condition(document) for condition in self._json_conditions)

    async def matching(self, records: list[RecordView], budget: WorkBudget) -> list[RecordView]:
        """Return the matching ones of ``records``, pausing whenever ``budget`` is used up."""
        if self.is_empty:
            return records
        decoded = () if self._values is None else await self._values.decoded(records)
        matching: list[RecordView] = []
        for record, part in zip_longest(records, decoded):
            if self.matches(record, part):
                matching.append(record)
            if budget.is_over(len(record.value or b""), self._weight):
                await budget.pause()
        return matching


def make_filter(
    *,
    key: Sequence[str] = (),
    value: Sequence[str] = (),
    header: Sequence[str] = (),
    json: Sequence[str] = (),
    values: TopicValues | None = None,
) -> Filter:
    """Build a filter from the conditions of a request. Raises ``InvalidRequest``."""
    given = [*key, *value, *header, *json]
    if len(given) > CONDITIONS_MAX:
        raise InvalidRequest(f"the request has {len(given)} conditions; give {CONDITIONS_MAX} at most")
    for text in given:
        if len(text) > _TEXT_CHARACTERS_MAX:
            raise InvalidRequest(
                f"a condition has {len(text)} characters; give {_TEXT_CHARACTERS_MAX} at most"
            )
    return Filter(
        [
            *(_on_key(text) for text in key if text),
            *(_on_value(text) for text in value if text),
            *(_on_header(text) for text in header if text),
        ],
        [_on_json(text) for text in json if text],
        values,
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
                f"json path {path[:60]!r} is invalid; write one like carrier, legs[0].from or $.a.b, "
                f"with {_STEPS_MAX} steps at most"
            )
        steps.append(step[1] if step[2] is None else int(step[2]))
        position = step.end()
    return steps


def _on_json(text: str) -> _JsonCondition:
    # Searches for the operator only: one pattern for the whole text would try each blank as the end of the path.
    signed = _SIGN.search(text)
    sign = None if signed is None else signed[0]
    path = (text if signed is None else text[: signed.start()]).strip()
    wanted_text = "" if signed is None else text[signed.end() :].strip()
    if not path:
        raise InvalidRequest(f"json condition {text[:60]!r} has no path; write one like dep_delay > 60")
    steps = _steps(path)
    try:
        wanted: Any = None if sign is None else _decode(wanted_text.encode())
    except (msgspec.DecodeError, RecursionError):
        # A word without quotes is a text.
        wanted = wanted_text
    if sign in _SIGNS and (isinstance(wanted, bool) or not isinstance(wanted, int | float | str)):
        raise InvalidRequest(
            f"json condition {text[:60]!r} compares with {wanted_text[:20]!r}; compare with a number or a text"
        )

    def condition(value: Any) -> bool:
        for step in steps:
            value = _follow(value, step)
            if value is _MISSING:
                return False
        return _holds(value, sign, wanted, wanted_text)

    return condition


def _follow(value: Any, step: str | int) -> Any:
    if isinstance(value, dict):
        return value.get(str(step), _MISSING)  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list) and isinstance(step, int) and step < len(value):  # pyright: ignore[reportUnknownArgumentType]
        return value[step]  # pyright: ignore[reportUnknownVariableType]
    return _MISSING


def _holds(value: Any, sign: str | None, wanted: Any, wanted_text: str) -> bool:
    if sign is None:
        return True
    if sign == "~":
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        return (wanted if isinstance(wanted, str) else wanted_text) in text
    if sign in ("==", "!="):
        # JSON does not distinguish 1 from 1.0; Python does not distinguish 1 from True either.
        is_equal = value == wanted and isinstance(value, bool) == isinstance(wanted, bool)
        return is_equal == (sign == "==")
    if isinstance(value, bool) or isinstance(value, str) != isinstance(wanted, str):
        return False
    return isinstance(value, int | float | str) and _SIGNS[sign](value, wanted)
