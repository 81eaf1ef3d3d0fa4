"""Random instances of the Kafka messages that ``stele.wire.kafka`` declares."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, cast

from stele.wire.schema import EncodedRows, Field, Type, fields_of

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_TEXTS = ("", "a", "orders", "größe", "x" * 126, "x" * 127, "y" * 300)


def random_message(cls: type, version: int, rng: random.Random, *, depth: int = 0) -> Any:
    """A message as ``version`` can carry it; fields that it does not have stay at their defaults."""
    return cls(
        **{one.name: _value(one, version, rng, depth) for one in fields_of(cls) if version in one.versions}
    )


def _value(one: Field, version: int, rng: random.Random, depth: int) -> Any:
    if one.tag is not None and rng.random() < 0.5:
        return one.default
    if version in one.nullable and rng.random() < 0.25:
        return None
    if one.name.endswith("error_code"):
        # Other implementations refuse numbers that no error has, and times before 1970.
        return rng.choice((0, 1, 3, 35, 79, 100))
    if one.name.endswith(("_ms", "timestamp")) and one.type.kind in _BITS:
        return rng.choice((0, 1, 500, 2**31 - 1))
    value = _of_type(one.type, version, rng, depth)
    if one.tag is not None and one.type.kind == "struct":
        # One that is all defaults is the same as none, and others write none.
        setattr(value, fields_of(one.type.struct_class)[0].name, 5)
    return value


def _of_type(kind: Type, version: int, rng: random.Random, depth: int) -> Any:
    match kind.kind:
        case "bool":
            return rng.random() < 0.5
        case "string":
            return rng.choice(_TEXTS)
        case "bytes" | "records":
            return rng.randbytes(rng.choice((0, 1, 61, 200)))
        case "float64":
            return rng.choice((0.0, 1.5, -1.0, 1e300))
        case "uint16":
            return rng.choice((0, 1, 9092, 2**16 - 1))
        case "uuid":
            return rng.randbytes(16)
        case "array":
            return [_of_type(kind.element, version, rng, depth + 1) for _ in range(rng.choice((0, 1, 2, 3)))]
        case "struct":
            return random_message(kind.struct_class, version, rng, depth=depth + 1)
        case number:
            bits = _BITS[number]
            return rng.choice((0, 1, -1, rng.getrandbits(bits - 1), 2 ** (bits - 1) - 1, -(2 ** (bits - 1))))


def leaves(message: Any, version: int) -> list[object]:
    """Every value that ``version`` carries, in wire order, with how many each list has."""
    found: list[object] = []
    _collect(message, version, found)
    return found


def _collect(value: Any, version: int, found: list[object]) -> None:
    if isinstance(value, (list, tuple, EncodedRows)):
        items = list(cast("Sequence[Any]", value))
        found.append(len(items))
        for item in items:
            _collect(item, version, found)
    elif hasattr(value, "__dataclass_fields__"):
        for one in fields_of(cast("type[Any]", type(value))):
            if version in one.versions:
                _collect(getattr(value, one.name), version, found)
    else:
        found.append(
            bytes(cast("bytes", value)) if isinstance(value, (bytes, bytearray, memoryview)) else value
        )
