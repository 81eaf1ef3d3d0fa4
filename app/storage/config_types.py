"""The types of configuration values, as Apache Kafka names and reads them.

Each parser takes the text of a value and returns it typed. It raises ``ValueError``
with the rule that the text breaks; the messages are Kafka's, which its tools show.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from enum import Enum

INT64_MAX = 2**63 - 1
_INT32_MAX = 2**31 - 1
# Kafka takes no underscores; earlier releases did, so stored topics may have them.
_INTEGER = re.compile(r"[+-]?\d{1,20}(_\d{1,20}){0,9}")


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


def _integer(
    config_type: ConfigType, minimum: int | None, maximum: int | None = None
) -> Callable[[str], int]:
    largest = _INT32_MAX if config_type is ConfigType.INT else INT64_MAX

    def parse(text: str) -> int:
        text = text.strip()
        number = int(text) if _INTEGER.fullmatch(text) else None
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
    value = text.strip().lower()
    if value not in ("true", "false"):
        raise ValueError("Expected value to be either true or false")
    return value == "true"


def choice(*choices: str) -> Callable[[str], str]:
    """Return a parser that accepts one of ``choices``, in this spelling."""

    def parse(text: str) -> str:
        text = text.strip()
        if text not in choices:
            raise ValueError(f"String must be one of: {', '.join(choices)}")
        return text

    return parse


def split_list(text: str) -> list[str]:
    """Split a list as Kafka writes it, and strip the spaces around its elements."""
    return [element.strip() for element in text.split(",")] if text.strip() else []


def ratio(text: str) -> float:
    """Parse a number from 0 to 1."""
    try:
        number = float(text.strip().replace("_", "x"))
    except ValueError:
        number = math.nan
    if math.isnan(number):
        raise ValueError("Not a number of type DOUBLE")
    if number < 0:
        raise ValueError("Value must be at least 0")
    if number > 1:
        raise ValueError("Value must be no more than 1")
    return number
