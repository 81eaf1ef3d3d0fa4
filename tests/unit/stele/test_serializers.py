"""Values of every kind of type go out as JSON and come back checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pydantic
import pytest
from stele.partitioners import RoundRobinPartitioner, StickyPartitioner, make_partitioner
from stele.serializers import (
    bytes_serializer,
    json_deserializer,
    json_serializer,
    json_type,
    str_deserializer,
    str_serializer,
)
from stele.wire.partitioner import partition_for_key


class AStruct(msgspec.Struct):
    name: str
    amount: int


@dataclass
class ADataclass:
    name: str
    amount: int


class AModel(pydantic.BaseModel):
    name: str
    amount: int


@pytest.mark.parametrize("cls", [AStruct, ADataclass, AModel])
def test_a_type_is_written_and_read_and_checked(cls: type[Any]) -> None:
    serde = json_type(cls)
    value = cls(name="ann", amount=5)
    data = serde.encode(value)
    assert msgspec.json.decode(data) == {"name": "ann", "amount": 5}
    assert serde.decode(data) == value
    with pytest.raises(ValueError, match="amount"):
        serde.decode(b'{"name":"ann","amount":"many"}')


def test_plain_types() -> None:
    assert json_deserializer(json_serializer({"a": [1, None]})) == {"a": [1, None]}
    assert str_deserializer(str_serializer("é")) == "é"
    assert bytes_serializer("é") == "é".encode()
    assert json_type(list[int]).decode(b"[1,2]") == [1, 2]


def test_partitioners_select_the_partition_by_the_hash_of_the_key() -> None:
    for name in ("murmur2", "round_robin"):
        assert make_partitioner(name)(b"key", 7, 1) == partition_for_key(b"key", 7)
    assert make_partitioner("fnv1a")(b"key", 7, 1) == partition_for_key(b"key", 7, hash_name="fnv1a")


def test_round_robin_takes_turns() -> None:
    partitioner = RoundRobinPartitioner()
    assert [partitioner(None, 3, 1) for _ in range(5)] == [0, 1, 2, 0, 1]
    assert partitioner(None, 1, 1) == 0


def test_sticky_stays_until_a_batch_is_filled() -> None:
    partitioner = StickyPartitioner()
    assert [partitioner(None, 3, 8192) for _ in range(7)] == [0, 0, 1, 1, 2, 2, 0]
