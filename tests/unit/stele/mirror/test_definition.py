"""The definition of a mirror, as the broker passes it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from stele.mirror.definition import Address, Definition, addresses
from stele.mirror.errors import MirrorError

WHOLE: dict[str, Any] = {
    "name": "prod",
    "from": "kafka-1:9092, [::1]:9093",
    "topics": r"orders\..*",
    "groups": None,
    "acls": False,
    "source": {"client.id": "x"},
    "rate": None,
}


def test_a_whole_definition() -> None:
    parsed = Definition.parse(json.dumps(WHOLE))
    assert parsed.servers == (Address("kafka-1", 9092), Address("::1", 9093))
    assert parsed.topics.fullmatch("orders.eu")
    assert not parsed.topics.fullmatch("orders")
    assert (parsed.name, parsed.groups, parsed.acls, parsed.rate) == ("prod", None, False, None)
    assert str(parsed.servers[1]) == "[::1]:9093"
    assert (parsed.is_outward, parsed.properties, parsed.offsets) == (False, {"client.id": "x"}, "equal")


def test_an_outward_definition() -> None:
    change = {"from": None, "to": "kafka:9092", "target": {"client.id": "y"}, "offsets": "translate"}
    parsed = Definition.parse(json.dumps(WHOLE | change))
    assert parsed.servers == (Address("kafka", 9092),)
    assert (parsed.is_outward, parsed.properties, parsed.offsets) == (True, {"client.id": "y"}, "translate")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"from": "kafka"}, "HOST:PORT"),
        ({"from": "kafka:0"}, "HOST:PORT"),
        ({"from": "kafka:65536"}, "HOST:PORT"),
        ({"from": ""}, "HOST:PORT"),
        ({"topics": "("}, "topics is not a regular expression"),
        ({"groups": "["}, "groups is not a regular expression"),
        ({"rate": 0}, "rate"),
        ({"to": "kafka:9092"}, "either from or to"),
        ({"from": None}, "either from or to"),
        ({"from": None, "to": "kafka"}, "HOST:PORT"),
        ({"offsets": "others"}, "offsets"),
        ({"source": {"a": 1}}, "source"),
        ({"more": 1}, "more"),
    ],
)
def test_a_mistake_is_explained(change: dict[str, Any], words: str) -> None:
    with pytest.raises(MirrorError, match=".*".join(words.split())):
        Definition.parse(json.dumps(WHOLE | change))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"\ud800"'])
def test_what_is_no_definition_is_refused(text: str) -> None:
    with pytest.raises(MirrorError):
        Definition.parse(text)


def test_an_address_may_be_a_name_or_a_number() -> None:
    assert addresses("10.0.0.1:1,b.example:65535") == (Address("10.0.0.1", 1), Address("b.example", 65535))
