"""Types of bodies and answers become JSON Schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, NotRequired, TypedDict

import pytest
from msgspec import Struct

from app.api.schemas import Components, Shown, one_of

Color = Annotated[str, one_of("Color", "red", "green")]


class Wheel(TypedDict):
    size: int


class BikeJson(TypedDict):
    color: Color
    front: Wheel
    rear: Wheel | None
    bell: NotRequired[Annotated[str | None, Shown("how it sounds")]]


class BikeBody(Struct, rename={"start": "from"}):
    color: Color = "red"
    gears: Annotated[int | None, Shown(minimum=1)] = None
    weight: Annotated[int | None, Shown(type=["integer", "null"])] = None
    start: str = "home"
    seats: int = 1


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (int, {"type": "integer"}),
        (Any, {}),
        (float | None, {"type": ["number", "null"]}),
        (str | int | bool, {"type": ["string", "integer", "boolean"]}),
        (list[str] | None, {"type": ["array", "null"], "items": {"type": "string"}}),
        (Sequence[bytes], {"type": "array", "items": {"type": "string", "format": "binary"}}),
        (dict[str, float], {"type": "object", "additionalProperties": {"type": "number"}}),
        (Annotated[int, Shown("its size", minimum=1)], {"type": "integer", "minimum": 1, "description": "its size"}),
        (Annotated[int, Shown(kind=list[str])], {"type": "array", "items": {"type": "string"}}),
        (Annotated[Color, Shown("of the frame")], {"$ref": "#/components/schemas/Color", "description": "of the frame"}),
        (Color | None, {"anyOf": [{"$ref": "#/components/schemas/Color"}, {"type": "null"}]}),
    ],
)  # fmt: skip
def test_a_type_has_a_schema(kind: Any, schema: dict[str, Any]) -> None:
    assert Components().schema_of(kind) == schema


def test_objects_and_enumerations_are_components() -> None:
    components = Components()
    assert components.schema_of(BikeJson) == {"$ref": "#/components/schemas/Bike"}
    assert components.schemas == {
        "Color": {"type": "string", "enum": ["red", "green"]},
        "Wheel": {"type": "object", "properties": {"size": {"type": "integer"}}, "required": ["size"]},
        "Bike": {
            "type": "object",
            "properties": {
                "color": {"$ref": "#/components/schemas/Color"},
                "front": {"$ref": "#/components/schemas/Wheel"},
                "rear": {"anyOf": [{"$ref": "#/components/schemas/Wheel"}, {"type": "null"}]},
                "bell": {"type": ["string", "null"], "description": "how it sounds"},
            },
            "required": ["color", "front", "rear"],
        },
    }


def test_a_field_of_a_body_that_may_be_left_out_is_shown_without_null_unless_it_says_so() -> None:
    components = Components()
    components.schema_of(BikeBody)
    assert components.schemas["BikeBody"] == {
        "type": "object",
        "properties": {
            "color": {"$ref": "#/components/schemas/Color", "default": "red"},
            "gears": {"type": "integer", "minimum": 1},
            "weight": {"type": ["integer", "null"]},
            "from": {"type": "string"},
            "seats": {"type": "integer", "default": 1},
        },
        "additionalProperties": False,
    }


def test_two_schemas_cannot_have_one_name() -> None:
    components = Components()
    components.schema_of(Color)
    with pytest.raises(AssertionError, match="two schemas are named Color"):
        components.schema_of(Annotated[str, one_of("Color", "blue")])
