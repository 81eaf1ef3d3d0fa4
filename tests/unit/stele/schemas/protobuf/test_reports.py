"""Reports of users of other registries and clients, each tried here."""

from __future__ import annotations

import pytest
from stele.schemas import protobuf
from stele.schemas.definitions import InvalidSchema, InvalidValue

from app.registry.compatibility.protobuf import incompatibilities

parse = protobuf.parse


def test_a_type_of_a_reference_that_is_not_imported_is_refused() -> None:
    """Aiven-Open/karapace #738: references were enough, imports were ignored."""
    text = 'syntax = "proto3"; message MyRecord { string f1 = 1; MyType f2 = 2; }'
    with pytest.raises(InvalidSchema, match='"MyType" is not defined'):
        parse(text, {"subject1": 'syntax = "proto3"; message MyType { int32 id = 1; }'})


def test_an_import_without_a_reference_is_named() -> None:
    """Aiven-Open/karapace #704: the message named the type, not the file that is missing."""
    text = """
        syntax = "proto3"; package karapace.bug.v1; import "shared/customer/benefits/discounts.proto";
        message ProductDiscount { map<string, shared.customer.benefits.v1beta1.DiscountAmount> discounts = 1; }
        """
    with pytest.raises(
        InvalidSchema, match=r'Import "shared/customer/benefits/discounts.proto" was not found'
    ):
        parse(text)
    reference = """
        syntax = "proto3"; package shared.customer.benefits.v1beta1;
        message DiscountAmount { oneof options { int64 fraction = 2; } }
        """
    assert parse(text, {"shared/customer/benefits/discounts.proto": reference}).canonical.endswith(
        "  map<string, shared.customer.benefits.v1beta1.DiscountAmount> discounts = 1;\n}\n"
    )


def test_a_schema_with_references_is_answered_serialized() -> None:
    """Aiven-Open/karapace #1263: format=serialized failed with references."""
    enum = 'syntax = "proto3"; package my.events; enum ProductEnum { A = 0; B = 1; }'
    text = 'syntax = "proto3"; package my.events; import "shared.proto"; message Event { ProductEnum product = 1; }'
    schema = parse(text, {"shared.proto": enum})
    assert parse(schema.serialized, {"shared.proto": enum}).canonical == schema.canonical


def test_the_oneof_of_an_optional_field_is_not_printed() -> None:
    """Aiven-Open/karapace #913: a schema was stored with ``optional`` inside a oneof, which nothing parses."""
    schema = parse('syntax = "proto3"; message M { double a = 7; optional T conversion = 6; } message T {}')
    assert parse(schema.serialized).canonical == schema.canonical
    assert "  optional T conversion = 6;\n" in schema.canonical
    assert "oneof" not in schema.canonical


def test_a_descriptor_without_a_package_is_registered_as_its_text() -> None:
    """Aiven-Open/karapace #742: what the client sends in base64 was refused."""
    text = """\
syntax = "proto3";

message Key {
  int32 id = 1;
}
message Dog {
  string name = 1;
  int32 weight = 2;
  repeated string toys = 4;
}
"""
    serialized = (
        "Cg5tZXNzYWdlcy5wcm90byIRCgNLZXkSCgoCaWQYASABKAUiMQoDRG9nEgwKBG5hbW"
        "UYASABKAkSDgoGd2VpZ2h0GAIgASgFEgwKBHRveXMYBCADKAliBnByb3RvMw=="
    )
    assert parse(serialized).canonical == text


def test_package_comes_before_imports() -> None:
    """redpanda-data/redpanda #12335: the canonical text had the imports first."""
    text = """\
syntax = "proto3";
package foo;

import "google/protobuf/timestamp.proto";

message Bar {
  google.protobuf.Timestamp timestamp = 24;
}
"""
    assert parse(text).canonical == text


def test_fields_in_another_order_are_the_same_schema_when_normalized() -> None:
    """redpanda-data/redpanda #26858."""
    one = parse(
        'syntax = "proto3"; package e; message User { string name = 1; oneof o { int32 age = 2; int32 b = 3; } }'
    )
    other = parse(
        'syntax = "proto3"; package e; message User { oneof o { int32 b = 3; int32 age = 2; } string name = 1; }'
    )
    assert one.canonical != other.canonical
    assert one.normalized() == other.normalized()


def test_a_message_that_looks_like_the_entry_of_a_map_keeps_its_place() -> None:
    """confluentinc/schema-registry #1857: nested messages came back in another order, which changes indexes."""
    text = """
        syntax = "proto3";
        message Test {
          Verb verb = 3;
          repeated HeadersEntry headers = 5;
          message HeadersEntry { string key = 1; string value = 2; }
          enum Verb { UNKNOWN = 0; GET = 1; }
          repeated QueryParamsEntry query_params = 6;
          message QueryParamsEntry { string key = 1; string value = 2; }
          map<string, int32> tags = 7;
          message Last {}
        }
        """
    schema = parse(text)
    assert list(schema.messages().values())[1:] == [
        "Test.HeadersEntry", "Test.QueryParamsEntry", "Test.TagsEntry", "Test.Last",
    ]  # fmt: skip
    assert parse(schema.canonical).messages() == parse(schema.serialized).messages() == schema.messages()
    assert parse(schema.normalized()).messages() == schema.messages()


def test_an_extension_within_the_path_of_an_option_is_read() -> None:
    """confluentinc/schema-registry #4470: ``(field).string.(company.datetime)`` was a syntax error."""
    validate = """
        syntax = "proto2"; package v; import "google/protobuf/descriptor.proto";
        message Rules { optional StringRules string = 1; }
        message StringRules { extensions 1000 to max; }
        extend google.protobuf.FieldOptions { optional Rules field = 1159; }
        """
    rules = 'syntax = "proto2"; package company; import "v.proto"; extend v.StringRules { optional bool datetime = 2000; }'
    text = 'syntax = "proto3"; import "v.proto"; import "c.proto"; message M { string s = 1 [(v.field).string.(company.datetime) = true]; }'
    references = {"v.proto": validate, "c.proto": rules}
    schema = parse(text, references)
    assert "[(v.field) = { string { [company.datetime]: true } }]" in schema.canonical
    assert parse(schema.canonical, references).canonical == schema.canonical


def test_indexes_out_of_range_or_negative_are_refused() -> None:
    """confluentinc/confluent-kafka-python #2271, confluent-kafka-javascript #467: -1 took the last message."""
    schema = parse('syntax = "proto3"; message A {} message B {}')
    for indexes in ([-1], [2], [0, 0], []):
        with pytest.raises(InvalidValue):
            schema.decode(b"", indexes)


def test_indexes_run_from_the_outermost_message_inwards() -> None:
    """confluentinc/confluent-kafka-dotnet #2505: they were written in reverse."""
    schema = parse('syntax = "proto3"; message Outer { message Inner1 {} message Inner2 { string f = 1; } }')
    assert schema.indexes("Outer.Inner2") == (0, 1)
    assert schema.message((0, 1)).full_name == "Outer.Inner2"


def test_the_name_of_the_record_has_its_package() -> None:
    """confluentinc/schema-registry #2075: RecordNameStrategy got a name without it."""
    assert parse('syntax = "proto3"; package a.b; message C {}').full_name == "a.b.C"


def test_a_partly_qualified_name_is_the_same_type() -> None:
    """Apicurio/apicurio-registry #9477: it was reported as another type, in a map too."""
    texts = (
        "optional Envelope.Group group = 1; map<string, Item> items = 3; message Item {}",
        "optional .p.Envelope.Group group = 1; map<string, .p.M.Item> items = 3; message Item {}",
    )
    one, other = (
        parse(
            f'syntax = "proto2"; package p; message M {{ {text} }} message Envelope {{ message Group {{}} }}'
        )
        for text in texts
    )
    assert one.canonical == other.canonical
    assert incompatibilities(one, other) == []


def test_a_new_field_is_compatible_in_both_directions() -> None:
    """Apicurio/apicurio-registry #9662: FORWARD refused it."""
    one = parse('syntax = "proto3"; message M { int32 a = 1; }')
    other = parse('syntax = "proto3"; message M { int32 a = 1; optional int32 b = 2; }')
    assert incompatibilities(one, other) == incompatibilities(other, one) == []


def test_a_new_required_field_is_incompatible() -> None:
    """Apicurio/apicurio-registry #2447: it was accepted."""
    one = parse("message M { required string a = 1; }")
    other = parse("message M { required string a = 1; required string b = 3; }")
    assert incompatibilities(other, one)


def test_a_removed_or_renamed_oneof_hides_no_change_of_its_fields() -> None:
    """confluentinc/schema-registry #4385."""
    one = parse('syntax = "proto3"; message M { oneof o { int32 a = 1; string b = 2; } }')
    for fields in ("string a = 1;", "oneof p { string a = 1; string b = 2; }"):
        assert incompatibilities(parse(f'syntax = "proto3"; message M {{ {fields} }}'), one)


def test_fields_of_a_referenced_message_that_moved_out_of_a_package_are_compared() -> None:
    """redpanda-data/redpanda #22798: FIELD_NAMED_TYPE_CHANGED and MESSAGE_REMOVED were not looked for."""
    one = parse('syntax = "proto3"; message M { A a = 1; } message A {} message B {}')
    assert incompatibilities(
        parse('syntax = "proto3"; message M { B a = 1; } message A {} message B {}'), one
    )
    assert incompatibilities(parse('syntax = "proto3"; message M { A a = 1; } message A {}'), one)
