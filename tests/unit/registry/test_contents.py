"""Digests of schemas: the GUID that all registries share, and the likeness by which equal ones are found."""

from __future__ import annotations

from hashlib import md5
from uuid import UUID

from stele.schemas.definitions import Reference

from app.registry.contents import Content


def content(text: str, schema_type: str = "AVRO") -> Content:
    return Content(schema_type=schema_type, text=text)


def guid_of(data: bytes) -> UUID:
    return UUID(bytes=md5(data, usedforsecurity=False).digest())


def test_the_guid_of_a_bare_schema_is_the_md5_of_its_text() -> None:
    assert content('"string"').guid == guid_of(b'"string"')
    assert content('"ü"').guid == guid_of('"ü"'.encode())


def test_the_type_does_not_count_in_the_guid() -> None:
    assert content("{}", "JSON").guid == content("{}", "PROTOBUF").guid
    assert not content("{}", "JSON").is_same(content("{}", "PROTOBUF"))


def test_references_count_in_the_guid() -> None:
    referring = Content(schema_type="AVRO", text="x", references=(Reference("n", "s", 258),))
    assert referring.guid == guid_of(b"xns\0\0\1\2")


def test_metadata_and_rules_count_in_the_guid_in_the_order_of_their_keys() -> None:
    full = Content(
        schema_type="AVRO",
        text="x",
        metadata={
            "properties": {"b": "2", "a": "1"},
            "tags": {"$.f": ["PII", "GDPR"]},
            "sensitive": ["b", "a"],
        },
        rule_set={
            "domainRules": [
                {
                    "name": "r",
                    "type": "CEL",
                    "params": {"k": "v"},
                    "tags": ["PII"],
                    "expr": "e",
                    "disabled": True,
                }
            ],
            "migrationRules": [{"name": "m", "kind": "CONDITION", "mode": "UPGRADE", "type": "JSONATA"}],
        },
    )
    assert full.guid == guid_of(
        b"x\1$.fGDPRPIIa1b2ab\1mCONDITIONUPGRADEJSONATArTRANSFORMWRITEREADCELPIIkve\1"
    )


def test_empty_metadata_is_none() -> None:
    assert Content(schema_type="AVRO", text="x", metadata={}, rule_set={}).guid == content("x").guid


def test_likeness_ignores_white_space_and_the_order_of_members() -> None:
    assert content('{"a": 1, "b": [1, 2]}').likeness == content('{"b":[1,2],"a":1}').likeness
    assert content('{"b":[2,1]}').likeness != content('{"b":[1,2]}').likeness
    assert content("{}", "JSON").likeness != content("{}", "AVRO").likeness
    assert (
        content('syntax = "proto3";\n', "PROTOBUF").likeness
        == content('syntax="proto3";', "PROTOBUF").likeness
    )


def test_texts_that_are_no_json_have_a_likeness() -> None:
    for text in ("", "{", "[" * 100_000, "1" * 10_000, "\ud800"):
        assert content(text).likeness == content(text).likeness


def test_other_rules_leave_the_text_alone() -> None:
    plain = content('"string"')
    assert plain.with_rules(None, {}) is plain
    ruled = plain.with_rules({"properties": {"a": "b"}}, None)
    assert (ruled.text, ruled.likeness) == (plain.text, plain.likeness)
    assert ruled.guid != plain.guid
    assert plain.metadata is None
