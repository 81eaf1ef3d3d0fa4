"""The types of configuration values, as Apache Kafka names and reads them.

Each parser takes the text of a value and returns it typed. It raises ``ValueError``
with the rule that the text breaks; the messages are Kafka's, which its tools show.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum

INT64_MAX = 2**63 - 1
_INT32_MAX = 2**31 - 1
# What Java's ``trim`` removes; Kafka trims every value.
_BLANKS = "".join(map(chr, range(ord(" ") + 1)))
_COMMA = re.compile(r"\s*,\s*", re.ASCII)
_INTEGER = re.compile(r"([+-]?)0*(\d{1,19})")
_DOUBLE = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,9})?[fFdD]?")


class ConfigType(Enum):
    """Kafka's types of configuration values."""

    BOOLEAN = "BOOLEAN"
    STRING = "STRING"
    INT = "INT"
    LONG = "LONG"
    SHORT = "SHORT"
    DOUBLE = "DOUBLE"
    LIST = "LIST"
    CLASS = "CLASS"


def trimmed(text: str) -> str:
    """Return a value without the blanks around it."""
    return text.strip(_BLANKS)


def as_stored(values: Mapping[str, str], type_of: Callable[[str], ConfigType | None]) -> dict[str, str]:
    """Return values that were read from the catalog, as they would be written now.

    Earlier releases took underscores between digits, and more kinds of blanks.
    """
    numbers = (ConfigType.INT, ConfigType.LONG)
    return {
        name: value.strip().replace("_", "") if type_of(name) in numbers else value.strip()
        for name, value in values.items()
    }


def _integer(
    config_type: ConfigType, minimum: int | None, maximum: int | None = None
) -> Callable[[str], int]:
    largest = _INT32_MAX if config_type is ConfigType.INT else INT64_MAX

    def parse(text: str) -> int:
        digits = _INTEGER.fullmatch(trimmed(text))
        number = None if digits is None else int(digits[1] + digits[2])
        if number is None or not -largest - 1 <= number <= largest:
            raise ValueError(f"Not a number of type {config_type.value}")
        if minimum is not None and number < minimum:
            raise ValueError(f"Value must be at least {minimum}")
        if maximum is not None and number > maximum:
            raise ValueError(f"Value must be no more than {maximum}")
        return number

    return parse


def int32(minimum: int | None, maximum: int | None = None) -> Callable[[str], int]:
    """Return a parser of 32-bit numbers within these bounds."""
    return _integer(ConfigType.INT, minimum, maximum)


def int64(minimum: int | None, maximum: int | None = None) -> Callable[[str], int]:
    """Return a parser of 64-bit numbers within these bounds."""
    return _integer(ConfigType.LONG, minimum, maximum)


def boolean(text: str) -> bool:
    """Parse ``true`` or ``false`` in any case."""
    value = trimmed(text).lower()
    if value not in ("true", "false"):
        raise ValueError("Expected value to be either true or false")
    return value == "true"


def choice(*choices: str) -> Callable[[str], str]:
    """Return a parser that accepts one of ``choices``, in this spelling."""

    def parse(text: str) -> str:
        text = trimmed(text)
        if text not in choices:
            raise ValueError(f"String must be one of: {', '.join(choices)}")
        return text

    return parse


def split_list(text: str) -> list[str]:
    """Split a list as Kafka writes it, and strip the blanks around its elements."""
    text = trimmed(text)
    return _COMMA.split(text) if text else []


def ratio(text: str) -> float:
    """Parse a number from 0 to 1."""
    text = trimmed(text)
    if not _DOUBLE.fullmatch(text):
        # Kafka takes NaN, and then compacts nothing.
        raise ValueError("Not a number of type DOUBLE")
    number = float(text.rstrip("fFdD"))
    if number < 0:
        raise ValueError("Value must be at least 0")
    if number > 1:
        raise ValueError("Value must be no more than 1")
    return number
