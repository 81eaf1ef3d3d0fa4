"""Whether data of one Protobuf schema can be read with another."""

from __future__ import annotations

from functools import cache

import pytest
from stele.schemas import protobuf
from stele.schemas.protobuf.schema import ProtobufSchema

from app.registry.compatibility.protobuf import incompatibilities


@cache
def schema(text: str, syntax: str = "proto3") -> ProtobufSchema:
    return protobuf.parse(f'syntax = "{syntax}"; import "google/protobuf/timestamp.proto"; {text}')


def found(old: str, new: str, syntax: str = "proto3") -> list[str]:
    """Return why data written with ``old`` cannot be read with ``new``."""
    return incompatibilities(schema(new, syntax), schema(old, syntax))


NESTED = "message A { B b = 1; message B { C c = 1; message C { %s x = 1; } } }"

COMPATIBLE = {
    "the same": ("message A { int32 x = 1; }", "message A { int32 x = 1; }"),
    "a field added": ("message A {}", "message A { int32 x = 1; }"),
    "a field removed": ("message A { int32 x = 1; }", "message A {}"),
    "a field renamed": ("message A { int32 x = 1; }", "message A { int32 y = 1; }"),
    "fields in another order": (
        "message A { int32 x = 1; int32 y = 2; }",
        "message A { int32 y = 2; int32 x = 1; }",
    ),
    "a message added": ("message A {}", "message A {} message B {}"),
    "messages in another order": ("message A {} message B {}", "message B {} message A {}"),
    "a message moved in": ("message A { B b = 1; } message B {}", "message A { B b = 1; message B {} }"),
    "a message moved out": ("message A { B b = 1; message B {} }", "message A { B b = 1; } message B {}"),
    "another package": ("package p; message A { A a = 1; }", "package q.r; message A { A a = 1; }"),
    "an enum added and used": ("message A { int32 x = 1; }", "message A { E x = 1; enum E { Z = 0; } }"),
    "an enum removed": ("message A { E x = 1; enum E { Z = 0; } }", "message A { int32 x = 1; }"),
    "another enum": ("message A { E x = 1; } enum E { Z = 0; }", "message A { F x = 1; } enum F { Y = 0; }"),
    "a constant added": ("enum E { Z = 0; }", "enum E { Z = 0; A = 1; }"),
    "a constant removed": ("enum E { Z = 0; A = 1; }", "enum E { Z = 0; }"),
    "a constant renamed": ("enum E { Z = 0; }", "enum E { Y = 0; }"),
    "int32 to bool": ("message A { int32 x = 1; }", "message A { bool x = 1; }"),
    "uint64 to int32": ("message A { uint64 x = 1; }", "message A { int32 x = 1; }"),
    "sint32 to sint64": ("message A { sint32 x = 1; }", "message A { sint64 x = 1; }"),
    "fixed32 to sfixed32": ("message A { fixed32 x = 1; }", "message A { sfixed32 x = 1; }"),
    "fixed64 to sfixed64": ("message A { fixed64 x = 1; }", "message A { sfixed64 x = 1; }"),
    "string to bytes": ("message A { string x = 1; }", "message A { bytes x = 1; }"),
    "bytes to string": ("message A { bytes x = 1; }", "message A { string x = 1; }"),
    "a string repeated": ("message A { string x = 1; }", "message A { repeated string x = 1; }"),
    "bytes no longer repeated": ("message A { repeated bytes x = 1; }", "message A { bytes x = 1; }"),
    "a message repeated": ("message A { A x = 1; }", "message A { repeated A x = 1; }"),
    "optional": ("message A { int32 x = 1; }", "message A { optional int32 x = 1; }"),
    "no longer optional": ("message A { optional int32 x = 1; }", "message A { int32 x = 1; }"),
    "packed": ("message A { repeated int32 x = 1; }", "message A { repeated int32 x = 1 [packed = false]; }"),
    "the value of a map": (
        "message A { map<string, int32> x = 1; }",
        "message A { map<string, bool> x = 1; }",
    ),
    "a oneof added": ("message A {}", "message A { oneof o { int32 x = 1; } }"),
    "a oneof removed": ("message A { oneof o { int32 x = 1; int32 y = 2; } }", "message A { int32 x = 1; }"),
    "a oneof removed with its fields": ("message A { oneof o { int32 x = 1; } }", "message A {}"),
    "a oneof renamed": (
        "message A { oneof o { int32 x = 1; int32 y = 2; } }",
        "message A { oneof p { int32 x = 1; int32 y = 2; } }",
    ),
    "a new field in a oneof": (
        "message A { oneof o { int32 x = 1; } }",
        "message A { oneof o { int32 x = 1; int32 y = 2; } }",
    ),
    "a field in a new oneof": (
        "message A { int32 x = 1; }",
        "message A { oneof o { int32 x = 1; int32 y = 2; } }",
    ),
    "a field out of a oneof": (
        "message A { oneof o { int32 x = 1; int32 y = 2; } }",
        "message A { oneof o { int32 x = 1; } int32 y = 2; }",
    ),
    "a message that contains itself": ("message A { A a = 1; B b = 2; } message B { A a = 1; }",) * 2,
    "options, reserved numbers and services": (
        "message A { int32 x = 1 [deprecated = true]; reserved 2; } service S { rpc C(A) returns (A); }",
        'option java_package = "a"; message A { int32 x = 1; int32 y = 2; }',
    ),
}
INCOMPATIBLE = {
    "a message removed": ("message A {} message B {}", "message A {}", ["message B: the reader has none of this name"]),
    "a message renamed": ("message A {}", "message B {}", ["message A: the reader has none of this name"]),
    "a message removed inside another": (
        "message A { message B {} }", "message A {}", ["message A.B: the reader has none of this name"],
    ),
    "int32 to string": (
        "message A { int32 x = 1; }", "message A { string x = 1; }",
        ["message A, field 'x' = 1: written as varint, read as string"],
    ),
    "int32 to sint32": (
        "message A { int32 x = 1; }", "message A { sint32 x = 1; }",
        ["message A, field 'x' = 1: written as varint, read as zigzag"],
    ),
    "int32 to fixed32": (
        "message A { int32 x = 1; }", "message A { fixed32 x = 1; }",
        ["message A, field 'x' = 1: written as varint, read as fixed32"],
    ),
    "float to double": (
        "message A { float x = 1; }", "message A { double x = 1; }",
        ["message A, field 'x' = 1: written as float, read as double"],
    ),
    "float to fixed32": (
        "message A { float x = 1; }", "message A { fixed32 x = 1; }",
        ["message A, field 'x' = 1: written as float, read as fixed32"],
    ),
    "a message to bytes": (
        "message A { A x = 1; }", "message A { bytes x = 1; }",
        ["message A, field 'x' = 1: written as message, read as string"],
    ),
    "a map to its entries": (
        "message A { map<string, int32> x = 1; message E { string key = 1; int32 value = 2; } }",
        "message A { repeated E x = 1; message E { string key = 1; int32 value = 2; } }",
        ["message A, field 'x' = 1: written as map, read as message"],
    ),
    "another message": (
        "message A { B x = 1; } message B {} message C {}", "message A { C x = 1; } message B {} message C {}",
        ["message A, field 'x' = 1: written as message B, read as message C"],
    ),
    "another message from an import": (
        "message A { A x = 1; }", "message A { google.protobuf.Timestamp x = 1; }",
        ["message A, field 'x' = 1: written as message A, read as message google.protobuf.Timestamp"],
    ),
    "a number repeated": (
        "message A { int32 x = 1; }", "message A { repeated int32 x = 1; }",
        ["message A, field 'x' = 1: repeated for the reader alone"],
    ),
    "an enum no longer repeated": (
        "message A { repeated E x = 1; } enum E { Z = 0; }", "message A { E x = 1; } enum E { Z = 0; }",
        ["message A, field 'x' = 1: repeated for the writer alone"],
    ),
    "another number": (
        "message A { int32 x = 1; int32 y = 2; }", "message A { int32 x = 1; int32 y = 3; }",
        ["message A, field 'y' = 2: the reader has it under the number 3"],
    ),
    "numbers swapped": (
        "message A { int32 x = 1; int32 y = 2; }", "message A { int32 x = 2; int32 y = 1; }",
        [
            "message A, field 'x' = 1: the reader has it under the number 2",
            "message A, field 'y' = 2: the reader has it under the number 1",
        ],
    ),
    "deep inside": (
        NESTED % "int32", NESTED % "string",
        ["message A.B.C, field 'x' = 1: written as varint, read as string"],
    ),
    "in a message that moved": (
        "message A { B b = 1; } message B { int32 x = 1; }", "message A { B b = 1; message B { string x = 1; } }",
        ["message B, field 'x' = 1: written as varint, read as string"],
    ),
    "the key of a map": (
        "message A { map<string, int32> x = 1; }", "message A { map<int32, int32> x = 1; }",
        ["message A, field 'x' = 1, key: written as string, read as varint"],
    ),
    "the message in a map": (
        "message A { map<string, B> x = 1; } message B { int32 y = 1; }",
        "message A { map<string, B> x = 1; } message B { double y = 1; }",
        ["message B, field 'y' = 1: written as varint, read as double"],
    ),
    "a field removed from a oneof": (
        "message A { oneof o { int32 x = 1; int32 y = 2; } }", "message A { oneof o { int32 x = 1; } }",
        ["message A, oneof 'o': the reader has no longer its fields 2"],
    ),
    "a field removed from a oneof that was renamed": (
        "message A { oneof o { int32 x = 1; int32 y = 2; } }", "message A { oneof p { int32 x = 1; } }",
        ["message A, oneof 'o': the reader has no longer its fields 2"],
    ),
    "another kind in a oneof that was renamed": (
        "message A { oneof o { int32 x = 1; } }", "message A { oneof p { string x = 1; int32 z = 3; } }",
        ["message A, field 'x' = 1: written as varint, read as string"],
    ),
    "a field into a oneof that was there": (
        "message A { int32 x = 1; oneof o { int32 y = 2; } }", "message A { oneof o { int32 x = 1; int32 y = 2; } }",
        ["message A, oneof 'o': of its fields 1, 2, the writer may set several"],
    ),
    "two fields into a new oneof": (
        "message A { int32 x = 1; int32 y = 2; }", "message A { oneof o { int32 x = 1; int32 y = 2; } }",
        ["message A, oneof 'o': of its fields 1, 2, the writer may set several"],
    ),
    "two oneofs into one": (
        "message A { oneof o { int32 x = 1; } oneof p { int32 y = 2; } }",
        "message A { oneof q { int32 x = 1; int32 y = 2; } }",
        ["message A, oneof 'q': of its fields 1, 2, the writer may set several"],
    ),
    "two optional fields into a new oneof": (
        "message A { optional int32 x = 1; optional int32 y = 2; }",
        "message A { oneof o { int32 x = 1; int32 y = 2; } }",
        ["message A, oneof 'o': of its fields 1, 2, the writer may set several"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new"), COMPATIBLE.values(), ids=COMPATIBLE)
def test_compatible(old: str, new: str) -> None:
    assert found(old, new) == []


@pytest.mark.parametrize(("old", "new", "reasons"), INCOMPATIBLE.values(), ids=INCOMPATIBLE)
def test_incompatible(old: str, new: str, reasons: list[str]) -> None:
    assert found(old, new) == reasons


@pytest.mark.parametrize(
    ("old", "new", "reasons"),
    [
        ("", "required int32 x = 1;", ["message A, field 'x' = 1: the reader requires it, and the writer has none"]),
        ("required int32 x = 1;", "", ["message A, field 'x' = 1: it is required by the writer, and the reader has none"]),
        ("optional int32 x = 1;", "required int32 x = 1;", ["message A, field 'x' = 1: required by the reader alone"]),
        ("required int32 x = 1;", "optional int32 x = 1;", ["message A, field 'x' = 1: required by the writer alone"]),
        ("required int32 x = 1;", "required int64 y = 1;", []),
        ("optional group G = 1 {}", "repeated group G = 1 {}", []),
        (
            "optional group G = 1 {}", "optional G g = 1; message G {}",
            ["message A, field 'g' = 1: written as group, read as message"],
        ),
    ],
)  # fmt: skip
def test_what_only_proto2_has(old: str, new: str, reasons: list[str]) -> None:
    assert found(f"message A {{ {old} }}", f"message A {{ {new} }}", "proto2") == reasons


def test_proto2_and_proto3_may_take_turns() -> None:
    old, new = schema("message A { optional int32 x = 1; }", "proto2"), schema("message A { int32 x = 1; }")
    assert incompatibilities(new, old) == incompatibilities(old, new) == []


def test_messages_of_imports_are_compared_too() -> None:
    text = 'syntax = "proto3"; import "b.proto"; message A { b.B b = 1; }'
    old, new = (
        protobuf.parse(text, {"b.proto": f'syntax = "proto3"; package b; message B {{ {kind} x = 1; }}'})
        for kind in ("int32", "string")
    )
    assert incompatibilities(new, old) == ["message B, field 'x' = 1: written as varint, read as string"]


def test_an_import_may_have_another_name() -> None:
    old, new = (
        protobuf.parse(
            f'syntax = "proto3"; import "{name}"; message A {{ b.B b = 1; }}',
            {name: 'syntax = "proto3"; package b; message B { int32 x = 1; }'},
        )
        for name in ("one.proto", "other.proto")
    )
    assert incompatibilities(new, old) == []


def test_schemas_with_many_differences_and_long_chains_of_messages_are_bounded() -> None:
    chain = (
        "".join(f"message M{n} {{ M{n + 1} next = 1; %s x = 2; }}" for n in range(3000)) + "message M3000 {}"
    )
    assert len(found(chain.replace("%s", "int32"), chain.replace("%s", "string"))) == 100
