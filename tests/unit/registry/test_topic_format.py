"""Keys and values of ``_schemas``, byte for byte."""

from __future__ import annotations

import json
from typing import Any

import pytest
from stele.schemas.definitions import Reference

from app.registry.contents import Content
from app.registry.topic_format import (
    CONFIG,
    DELETE_SUBJECT,
    MODE,
    NOOP,
    SCHEMA,
    Key,
    SchemaValue,
    Unreadable,
    delete_subject_record,
    highest_ids_record,
    object_record,
    read_highest_ids,
    read_key,
    read_value,
    schema_record,
)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (
            Key(SCHEMA, "orders-value", 3),
            b'{"keytype":"SCHEMA","subject":"orders-value","version":3,"magic":1}',
        ),
        (Key(CONFIG, "orders-value"), b'{"keytype":"CONFIG","subject":"orders-value","magic":0}'),
        (Key(CONFIG), b'{"keytype":"CONFIG","magic":0}'),
        (Key(MODE, ":.eu:"), b'{"keytype":"MODE","subject":":.eu:","magic":0}'),
        (Key(DELETE_SUBJECT, "a"), b'{"keytype":"DELETE_SUBJECT","subject":"a","magic":0}'),
        (Key(NOOP), b'{"keytype":"NOOP","magic":0}'),
        (
            Key(SCHEMA, 'qu"ote/ü', 1),
            '{"keytype":"SCHEMA","subject":"qu\\"ote/ü","version":1,"magic":1}'.encode(),
        ),
    ],
)
def test_the_order_of_the_members_of_a_key(key: Key, expected: bytes) -> None:
    assert key.encoded() == expected
    assert read_key(expected) == key


@pytest.mark.parametrize(
    ("data", "key"),
    [
        # Karapace before it took over the order of Confluent.
        (b'{"subject":"a","version":2,"magic":1,"keytype":"SCHEMA"}', Key(SCHEMA, "a", 2)),
        (b'{"subject":null,"magic":0,"keytype":"CONFIG"}', Key(CONFIG)),
        # Confluent's registry of 2017: magic 0, and of 2023: a null subject.
        (b'{"magic":0,"keytype":"SCHEMA","subject":"a","version":2}', Key(SCHEMA, "a", 2)),
        (b'{"keytype":"MODE","subject":null,"magic":0}', Key(MODE)),
        (b'{"keytype": "NOOP", "magic": 0}', Key(NOOP)),
        (b'{"keytype":"CLEAR_SUBJECT","subject":"a","magic":0}', Key("CLEAR_SUBJECT", "a")),
        (b'{"keytype":"CONTEXT","tenant":"default","context":".eu"}', Key("CONTEXT", ".eu")),
    ],
)
def test_keys_of_other_servers_are_the_same_keys(data: bytes, key: Key) -> None:
    assert read_key(data) == key


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"nope",
        b"[]",
        b"{}",
        b'{"keytype":"ASSOCIATION","resource":"x"}',
        b'{"keytype":"SCHEMA","subject":"a","magic":1}',
        b'{"keytype":"SCHEMA","subject":"a","version":0,"magic":1}',
        b'{"keytype":"SCHEMA","subject":"a","version":true,"magic":1}',
        b'{"keytype":"SCHEMA","subject":"a","version":2147483648,"magic":1}',
        b'{"keytype":"DELETE_SUBJECT","subject":null,"magic":0}',
        b"[" * 100_000,
        b"\xff\xfe",
    ],
)
def test_keys_that_are_not_understood(data: bytes) -> None:
    with pytest.raises(Unreadable):
        read_key(data)


def test_the_value_of_a_version_leaves_out_what_is_empty() -> None:
    content = Content(schema_type="AVRO", text='"string"')
    record = schema_record("a", 1, SchemaValue(7, content, False))
    assert record.key == Key(SCHEMA, "a", 1).encoded()
    assert record.value == b'{"subject":"a","version":1,"id":7,"schema":"\\"string\\"","deleted":false}'
    assert not record.is_canonical


def test_the_value_of_a_version_with_everything() -> None:
    content = Content(
        schema_type="PROTOBUF",
        text="syntax",
        references=(Reference("b.proto", "b", 2),),
        metadata={"properties": {"owner": "me"}},
        rule_set={"domainRules": [{"name": "r"}]},
        is_canonical=True,
    )
    record = schema_record(":.eu:a", 1, SchemaValue(7, content, True))
    assert record.is_canonical
    assert record.value == (
        b'{"subject":":.eu:a","version":1,"id":7,"schemaType":"PROTOBUF",'
        b'"references":[{"name":"b.proto","subject":"b","version":2}],'
        b'"metadata":{"properties":{"owner":"me"}},"ruleSet":{"domainRules":[{"name":"r"}]},'
        b'"schema":"syntax","deleted":true}'
    )
    value = read_value(read_key(record.key), record.value, is_canonical=True)
    assert isinstance(value, SchemaValue)
    assert (value.id, value.is_deleted) == (7, True)
    assert value.content.is_same(content)
    assert value.content.references == content.references
    assert value.content.is_canonical


def test_a_version_as_karapace_writes_it() -> None:
    value = read_value(
        Key(SCHEMA, "a", 1),
        b'{"subject": "a", "version": 1, "id": 3, "schema": "{}", "deleted": false, "schemaType": "JSON"}',
    )
    assert isinstance(value, SchemaValue)
    assert (value.id, value.content.schema_type, value.is_deleted) == (3, "JSON", False)
    assert value.content.canonical is None


@pytest.mark.parametrize(
    "value",
    [
        {"id": 1},
        {"schema": "x"},
        {"id": "1", "schema": "x"},
        {"id": -1, "schema": "x"},
        {"id": 1, "schema": "x", "references": [{"name": "a"}]},
        [],
        "x",
    ],
)
def test_values_of_versions_that_are_not_understood(value: Any) -> None:
    with pytest.raises(Unreadable):
        read_value(Key(SCHEMA, "a", 1), json.dumps(value).encode())


@pytest.mark.parametrize("data", [None, b"", b"null"])
def test_null_values(data: bytes | None) -> None:
    assert read_value(Key(SCHEMA, "a", 1), data) is None


def test_other_records() -> None:
    assert object_record(Key(CONFIG, "a"), {"compatibilityLevel": "FULL"}) == (
        b'{"keytype":"CONFIG","subject":"a","magic":0}',
        b'{"compatibilityLevel":"FULL"}',
        False,
    )
    assert delete_subject_record("a", 4).value == b'{"subject":"a","version":4}'
    record = highest_ids_record({".eu": 3, ".": 17})
    assert record == (b'{"keytype":"NOOP","magic":0}', b'{"highestIds":{".":17,".eu":3}}', False)
    value = read_value(Key(NOOP), record.value)
    assert not isinstance(value, SchemaValue)
    assert read_highest_ids(value) == {".": 17, ".eu": 3}
    assert read_highest_ids(None) == {}


def test_half_of_a_surrogate_pair_survives_a_rewrite() -> None:
    value = read_value(Key(SCHEMA, "a", 1), b'{"id":1,"schema":"\\ud800"}')
    assert isinstance(value, SchemaValue)
    again = schema_record("a", 1, value)
    assert b"\\ud800" in (again.value or b"")
    assert read_value(Key(SCHEMA, "a", 1), again.value) is not None
