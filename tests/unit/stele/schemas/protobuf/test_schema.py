"""A Protobuf schema: its text, its messages and their indexes, and how bad ones are refused."""

from __future__ import annotations

import base64
import contextlib
import subprocess
import sys
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given, settings
from stele.schemas import protobuf
from stele.schemas.definitions import InvalidSchema, InvalidValue, ParsedSchema
from stele.schemas.protobuf import compiler
from stele.schemas.protobuf.schema import MAX_NAMES, ProtobufSchema

from tests.support import protobuf_schemas

parse = protobuf.parse
ALL = pytest.mark.parametrize("text", protobuf_schemas.ALL.values(), ids=protobuf_schemas.ALL)


def serialized(descriptor: FileDescriptorProto) -> str:
    return base64.b64encode(descriptor.SerializeToString()).decode()


def meaning(schema: ProtobufSchema) -> bytes:
    """Return the descriptor with its options as their definitions have them: their order may differ."""
    data = schema._proto.SerializeToString()
    try:
        known: Any = GetMessageClass(
            schema._pool.FindMessageTypeByName("google.protobuf.FileDescriptorProto")
        )
    except KeyError:
        known = FileDescriptorProto
    return known.FromString(data).SerializeToString(deterministic=True)


# ── its text ──


@ALL
def test_the_canonical_text_means_the_same_and_is_its_own(text: str) -> None:
    schema = parse(text)
    again = parse(schema.canonical)
    assert meaning(again) == meaning(schema)
    assert again.canonical == schema.canonical


@ALL
def test_a_schema_may_come_as_its_descriptor(text: str) -> None:
    schema = parse(text)
    again = parse(schema.serialized)
    assert again.canonical == schema.canonical
    assert meaning(again) == meaning(schema)


@ALL
def test_the_normalized_text_means_the_same_but_for_orders_without_a_meaning(text: str) -> None:
    schema = parse(text)
    again = parse(schema.normalized())
    assert again.normalized() == schema.normalized()
    assert again.messages() == schema.messages()


@settings(max_examples=10)
@given(protobuf_schemas.texts())
def test_whatever_the_names_the_canonical_text_means_the_same(text: str) -> None:
    schema = parse(text)
    assert meaning(parse(schema.canonical)) == meaning(schema)
    assert parse(schema.normalized()).messages() == schema.messages()


def test_the_canonical_text_is_one_that_a_person_would_write() -> None:
    schema = parse(
        """
        // Orders of the shop.
        syntax="proto3"; import "google/protobuf/timestamp.proto";
        package shop;
        option java_package = "b"; option go_package = "a";
        message Order { .shop.Order.Line first=1 [json_name="first"]; shop.Order.Line second=2;
          google.protobuf.Timestamp at = 3; message Line { repeated string notes = 1 [deprecated=true]; } }
        """
    )
    assert schema.canonical == (
        """\
syntax = "proto3";
package shop;

import "google/protobuf/timestamp.proto";

option go_package = "a";
option java_package = "b";

message Order {
  Line first = 1;
  Line second = 2;
  google.protobuf.Timestamp at = 3;
  message Line {
    repeated string notes = 1 [deprecated = true];
  }
}
"""
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("message A { int32 x = 1; }", "/* c */ message A {\n\tint32 x=1; // d\n}"),
        ("message A { A x = 1; }", "message A { .A x = 1; }"),
        ("message A { int32 some_name = 1; }", 'message A { int32 some_name = 1 [json_name = "someName"]; }'),
        (
            'option java_package = "a"; option go_package = "b";',
            'option go_package = "b"; option java_package = "a";',
        ),
        ("message A { reserved 1 to 1; }", "message A { reserved 0x01; }"),
    ],
)
def test_two_texts_with_the_same_meaning_are_equal(one: str, other: str) -> None:
    first, second = (parse(f'syntax = "proto3"; {text}') for text in (one, other))
    assert first.canonical == second.canonical


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("message A { int32 a = 1; int32 b = 2; }", "message A { int32 b = 2; int32 a = 1; }"),
        (
            "message A { oneof o { int32 a = 1; int32 b = 2; } }",
            "message A { oneof o { int32 b = 2; int32 a = 1; } }",
        ),
        ("enum E { Z = 0; A = 1; B = 2; }", "enum E { Z = 0; B = 2; A = 1; }"),
        (
            "message A { reserved 1, 2; reserved 'a', 'b'; }",
            "message A { reserved 2, 1; reserved 'b', 'a'; }",
        ),
        (
            "import 'google/type/money.proto'; import 'google/protobuf/any.proto';",
            "import 'google/protobuf/any.proto'; import 'google/type/money.proto';",
        ),
    ],
)
def test_two_texts_with_another_order_are_equal_when_normalized(one: str, other: str) -> None:
    first, second = (parse(f'syntax = "proto3"; {text}') for text in (one, other))
    assert first.canonical != second.canonical
    assert first.normalized() == second.normalized()


def test_normalizing_changes_no_index_of_a_message() -> None:
    # A map makes a message where it stands.
    schema = parse(
        'syntax = "proto3"; message A { map<string, int32> b = 2; message N {} map<string, int32> a = 1; }'
    )
    assert schema.messages()[0, 1] == "A.N"
    assert parse(schema.normalized()).messages() == schema.messages()


def test_the_default_of_an_enum_stays_the_first_of_its_constants_when_normalized() -> None:
    schema = parse('syntax = "proto2"; enum E { B = 5; A = 1; C = 3; }')
    assert [value.name for value in parse(schema.normalized()).file.enum_types_by_name["E"].values] == [
        "B",
        "A",
        "C",
    ]


# ── imports ──


def test_an_import_is_the_reference_of_that_name_and_has_its_own_imports() -> None:
    references = {
        "shop/base.proto": 'syntax = "proto3"; package base; message Id { string id = 1; }',
        "shop/item.proto": 'syntax = "proto2"; package item; import "shop/base.proto"; message Item { optional base.Id id = 1; }',
    }
    schema = parse(
        'syntax = "proto3"; import "shop/item.proto"; message Order { item.Item item = 1; }', references
    )
    assert schema.full_name == "Order"
    assert schema.decode(schema.encode({"item": {"id": {"id": "x"}}})) == {"item": {"id": {"id": "x"}}}
    # What an import imports is not visible, unless that is public.
    with pytest.raises(
        InvalidSchema, match=r'"base\.Id" seems to be defined in "shop/base\.proto", which is not imported'
    ):
        parse('syntax = "proto3"; import "shop/item.proto"; message Order { base.Id id = 1; }', references)


def test_a_reference_may_be_a_descriptor() -> None:
    base = parse('syntax = "proto3"; package base; message Id { string id = 1; }')
    text = 'syntax = "proto3"; import "base.proto"; message Order { base.Id id = 1; }'
    assert (
        parse(text, {"base.proto": base.serialized}).canonical
        == parse(text, {"base.proto": base.canonical}).canonical
    )


def test_known_files_need_no_reference_and_are_not_replaced_by_one() -> None:
    text = """
        syntax = "proto3";
        import "google/protobuf/timestamp.proto";
        import "google/type/date.proto";
        import "confluent/meta.proto";
        import "confluent/type/decimal.proto";
        message A {
          google.protobuf.Timestamp at = 1;
          google.type.Date on = 2 [(confluent.field_meta).doc = "the day"];
          confluent.type.Decimal price = 3;
        }
        """
    other = {
        "google/protobuf/timestamp.proto": 'syntax = "proto3"; package google.protobuf; message Timestamp { string t = 1; }'
    }
    for schema in (parse(text), parse(text, other)):
        assert schema.encode({"at": "1970-01-01T00:00:01Z"}) == b"\x0a\x02\x08\x01"
    assert parse(text.replace("type/decimal", "types/decimal")).full_name == "A"


@pytest.mark.parametrize(
    "text",
    [
        'import "missing.proto";',
        'import "/etc/hostname";',
        'import "../../../../../../etc/hostname";',
        'import "google/protobuf/../../../protoc.py";',
        'import "default";',
        'import "";',
        'import "\\000";',
    ],
)
def test_an_import_reads_no_other_file(text: str) -> None:
    with pytest.raises(InvalidSchema, match="line 1, column"):
        parse(text)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "/",
        "/a",
        "a/",
        "a//b",
        ".",
        "..",
        "../a",
        "a/../b",
        "a\\b",
        "a\0b",
        "default",
        "default/a",
        "x" * 300,
    ],
)
def test_a_reference_whose_name_is_no_path_of_a_file_is_refused(name: str) -> None:
    with pytest.raises(InvalidSchema, match="no file can have the name of the reference"):
        parse("message A {}", {"other.proto": "", name: "message B {}"})


def test_references_that_import_each_other_are_refused() -> None:
    references = {"a.proto": 'import "b.proto";', "b.proto": 'import "a.proto";'}
    with pytest.raises(InvalidSchema, match="recursively imports itself"):
        parse('import "a.proto";', references)


def test_an_error_in_a_reference_names_it() -> None:
    with pytest.raises(InvalidSchema, match=r"a\.proto:1:8: Expected message name"):
        parse('import "a.proto";', {"a.proto": "message"})


# ── messages and their indexes ──


def test_indexes_count_the_messages_of_a_file_or_message_those_of_maps_and_groups_too() -> None:
    schema = parse(protobuf_schemas.PROTO2)
    names = {indexes: name.removeprefix("old.fashioned.") for indexes, name in schema.messages().items()}
    assert names == {
        (0,): "Everything",
        (0, 0): "Everything.Result",
        (0, 0, 0): "Everything.Result.Inner",
        (0, 1): "Everything.Between",
        (0, 2): "Everything.PartsEntry",
        (0, 3): "Everything.Second",
        (0, 4): "Everything.Set",
        (1,): "Extra",
        (2,): "Last",
        (3,): "Set2",
    }
    for indexes, name in schema.messages().items():
        assert schema.message(indexes).full_name == name
        assert schema.indexes(name) == indexes
    assert schema.full_name == "old.fashioned.Everything"


@pytest.mark.parametrize("indexes", [(), (-1,), (1,), (0, 0), (0, -1), (1 << 40,)])
def test_indexes_that_no_message_has_are_refused(indexes: tuple[int, ...]) -> None:
    schema = parse("message A {}")
    refused = pytest.raises(InvalidValue, match="no message with the indexes")
    with refused:
        schema.message(indexes)
    with refused:
        schema.encode({}, indexes)
    with refused:
        schema.decode(b"", indexes)


def test_a_message_that_the_schema_does_not_declare_has_no_indexes() -> None:
    schema = parse('syntax = "proto3"; import "google/protobuf/any.proto"; message A { message B {} }')
    assert schema.indexes("A.B") == (0, 0)
    for name in ("B", "A.B.C", "", "google.protobuf.Any"):
        with pytest.raises(InvalidValue, match="declares no message"):
            schema.indexes(name)


def test_a_file_without_messages_is_a_schema_that_others_import() -> None:
    schema = parse("enum E { A = 1; }")
    assert schema.full_name is None
    with pytest.raises(InvalidValue):
        schema.encode({})


# ── what is refused ──


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is empty"),
        (" \n", "it is empty"),
        ("abcd", "line 1, column 1: "),
        ('{"type": "record"}', "line 1, column 1: "),
        ("message A {", "Reached end of input in message definition"),
        ("message A { }; message A { }", '"A" is already defined'),
        ('syntax = "proto3"; message A { int32 a = 0; }', "Field numbers must be positive integers"),
        ('syntax = "proto3"; message A { int32 a = 1; int32 b = 1; }', "has already been used"),
        ('syntax = "proto3"; message A { B b = 1; }', 'line 1, column 32: "B" is not defined'),
        (
            'syntax = "proto3"; message A { required int32 a = 1; }',
            "Required fields are not allowed in proto3",
        ),
        ('syntax = "proto3"; enum E { A = 1; }', "must be zero"),
        ('syntax = "proto3"; message A { option (unknown) = 1; }', r'Option "\(unknown\)" unknown'),
        ('syntax = "proto4";', "Unrecognized syntax identifier"),
        ("message A { optional string a = 1 [default = 5]; }", "Expected string"),
        ("message A { \ud800 }", "lone surrogates"),
        ("message A {\0}", "line 1, column"),
        ("message A { " * 10_000 + "}" * 10_000, "nest"),
        ("option x = { " + "a {" * 10_000 + "}" * 10_000 + "};", "nest|deep|Option"),
        pytest.param("; }" * 300_000, "line 1, column", marks=pytest.mark.long),
        (
            'syntax = "proto3"; message A { ' + "\n".join(f"B{n} b{n} = {n + 1};" for n in range(15_000)),
            "line 1",
        ),
        ("x" * (protobuf.MAX_TEXT + 1), "more than 1,048,576 characters"),
    ],
)
def test_what_is_no_schema_is_refused_with_a_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidSchema, match=reason) as refused:
        parse(text)
    assert len(str(refused.value)) <= 2000
    assert "/tmp" not in str(refused.value)


def test_references_count_for_the_size_of_a_schema() -> None:
    with pytest.raises(InvalidSchema, match="with its references 4,194,304"):
        parse("message A {}", {f"{n}.proto": " " * protobuf.MAX_TEXT for n in range(4)})


def test_a_schema_of_too_many_names_is_refused() -> None:
    values = "".join(f"V{n}={n};" for n in range(MAX_NAMES))
    with pytest.raises(InvalidSchema, match="more than 20,000 names"):
        parse(f"enum E {{{values}}}")


def test_a_schema_that_grows_beyond_all_bounds_when_it_is_compiled_is_refused() -> None:
    # The descriptor of each field has the whole name of its message.
    fields = "".join(f"optional A a{n} = {n + 1};" for n in range(7_000))
    for length, reason in (
        (10_000, "descriptors may have more than 16 MiB"),
        (300_000, "protoc needs more than"),
    ):
        with pytest.raises(InvalidSchema, match=reason):
            parse(f"message {'p' * length} {{ message A {{ {fields} }} }}")


def test_a_compiler_that_crashes_refuses_the_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "_PROGRAM", "import os; os.abort()")
    with pytest.raises(InvalidSchema, match=r"or crashes \(status -6\)"):
        parse("message A {}")


def test_a_compiler_that_does_not_end_refuses_the_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "_PROGRAM", "import sys; sys.stdin = open('/dev/zero'); input()")
    monkeypatch.setattr(compiler, "_WALL_SECONDS", 0.2)
    with pytest.raises(InvalidSchema, match="did not end in time"):
        parse("message A {}")


@pytest.mark.parametrize("package", ["grpc_tools", "google.protobuf", "google._upb", "google.type"])
def test_without_the_extra_the_refusal_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    found = protobuf.find_spec
    monkeypatch.setattr(protobuf, "find_spec", lambda name: None if name == package else found(name))  # pyright: ignore
    with pytest.raises(InvalidSchema, match=r"pip install 'stele-broker\[protobuf\]'"):
        parse("message A {}")


# ── hostile descriptors ──


@pytest.mark.parametrize(
    "change",
    [
        "d.package = 'p; message Evil {}'",
        "d.syntax = 'proto9'",
        "d.syntax = 'editions'",
        "d.MergeFromString(b'\\x70\\xc0\\x84\\x3d')",  # edition = 1000000
        "d.dependency.append('missing.proto')",
        "d.dependency.append('a.proto\"; message Evil {} import \"')",
        "d.public_dependency.append(7)",
        "a.name = 'A {} message Evil'",
        "a.name = ''",
        "a.nested_type[0].field.pop()",
        "a.nested_type[0].options.map_entry = False",
        "a.nested_type[1].options.map_entry = True",
        "nested = list(a.nested_type); a.ClearField('nested_type'); a.nested_type.extend(reversed(nested))",
        "a.field[0].number = 0",
        "a.field[0].number = -1",
        "a.field[0].ClearField('type_name')",
        "a.field[0].ClearField('label')",
        "a.field[1].type_name = '.p.A.MEntry'",
        "a.field[2].oneof_index = 5",
        "a.field[2].oneof_index = -1",
        "a.field[2].type = 10",
        "a.field[2].type = 1000",
        "a.field[2].label = 2",
        "a.field[2].default_value = '1]; message Evil {} //'",
        "a.field[2].extendee = '.p.A'",
        "a.field[2].proto3_optional = True",
        "a.field[3].type_name = '.p.E'",
        "a.field[3].type_name = '.p.Missing'",
        "a.options.uninterpreted_option.add().name.add()",
        "d.enum_type[0].value.pop()",
        "d.enum_type[0].reserved_range.add(start=5, end=1)",
        "d.service[0].method[0].input_type = '.p.E'",
        "d.service[0].method[0].options.idempotency_level = 0",
    ],
)
def test_a_hostile_descriptor_is_refused_or_means_what_its_text_says(change: str) -> None:
    schema = parse(
        """
        syntax = "proto3"; package p;
        message A { map<string, int32> m = 1; message N {} map<string, int32> n = 2; oneof o { int32 x = 3; } A a = 4; }
        enum E { Z = 0; }
        service S { rpc Call(A) returns (A); }
        """
    )
    descriptor = FileDescriptorProto.FromString(base64.b64decode(schema.serialized))
    with contextlib.suppress(ValueError):  # a closed enum does not take a number that it lacks
        exec(change, {"d": descriptor, "a": descriptor.message_type[0]})
    try:
        schema = parse(base64.b64encode(descriptor.SerializePartialToString()).decode())
    except InvalidSchema:
        return
    assert parse(schema.canonical).canonical == schema.canonical
    assert "Evil" not in schema.messages().values()


def test_a_descriptor_that_is_deeply_nested_is_refused() -> None:
    descriptor = FileDescriptorProto(name="x", syntax="proto3")
    message = descriptor.message_type.add(name="M")
    for _ in range(90):
        message = message.nested_type.add(name="M")
    with pytest.raises(InvalidSchema):
        parse(serialized(descriptor))


@pytest.mark.parametrize("data", [b"\x0a", b"\xff" * 30, b"\x22\x02\x0a\x00" * 1000, b"\x0a\x01a" * 3])
def test_bytes_that_are_no_descriptor_are_refused(data: bytes) -> None:
    text = base64.b64encode(data).decode()
    try:
        schema = parse(text)
    except InvalidSchema:
        return
    assert schema.full_name is None


def test_options_that_no_import_defines_are_left_out_of_a_descriptor() -> None:
    descriptor = FileDescriptorProto(name="x.proto", syntax="proto3")
    message = DescriptorProto(name="A")
    message.options.MergeFromString(b"\x8a\xb5\x18\x01x")  # field 50001
    descriptor.message_type.append(message)
    assert parse(serialized(descriptor)).canonical == 'syntax = "proto3";\n\nmessage A {\n}\n'


def test_options_of_a_descriptor_that_are_not_as_defined_are_refused() -> None:
    rules = """
        syntax = "proto2"; import "google/protobuf/descriptor.proto"; message R {}
        extend google.protobuf.MessageOptions { optional R r = 50001; }
        """
    descriptor = FileDescriptorProto(name="x.proto", syntax="proto3", dependency=["r.proto"])
    message = descriptor.message_type.add(name="A")
    message.options.MergeFromString(b"\x8a\xb5\x18\x01\xff")  # field 50001
    with pytest.raises(InvalidSchema, match="its descriptor is not valid"):
        parse(serialized(descriptor), {"r.proto": rules})


def test_options_of_a_descriptor_are_printed_by_the_definitions_in_its_imports() -> None:
    rules = 'syntax = "proto2"; package r; import "google/protobuf/descriptor.proto"; extend google.protobuf.FieldOptions { optional string rule = 50000; }'
    schema = parse(
        'syntax = "proto3"; import "r.proto"; message A { int32 a = 1 [(r.rule) = "x"]; }', {"r.proto": rules}
    )
    assert '[(r.rule) = "x"]' in schema.canonical
    assert parse(schema.serialized, {"r.proto": rules}).canonical == schema.canonical


def test_nothing_of_protobuf_is_imported_before_a_schema_is_parsed() -> None:
    program = "import sys, stele.schemas.protobuf; sys.exit('google.protobuf' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_schema_is_one_of_the_types_that_the_registry_knows() -> None:
    schema: ParsedSchema = parse("message A {}")
    assert schema.type == "PROTOBUF"
    assert isinstance(schema, ProtobufSchema)
