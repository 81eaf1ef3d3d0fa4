"""The fold over ``_schemas``: whatever other registries and compaction have left there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from app.registry.names import Name
from app.registry.state import State
from app.registry.topic_format import Record
from tests.support.schema_topic import SchemaTopic, compacted, fold


def record(key: Mapping[str, Any] | bytes, value: Mapping[str, Any] | bytes | None) -> Record:
    raw_key = key if isinstance(key, bytes) else json.dumps(key, separators=(",", ":")).encode()
    raw_value = json.dumps(value).encode() if isinstance(value, Mapping) else value
    return Record(raw_key, raw_value)


def schema(subject: str, version: int, schema_id: int, text: str = "a", **more: Any) -> Record:
    key = {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}
    value = {
        "subject": subject,
        "version": version,
        "id": schema_id,
        "schema": text,
        "deleted": False,
        **more,
    }
    return record(key, value)


def null(subject: str, version: int) -> Record:
    return Record(schema(subject, version, 1).key, None)


def deletion(subject: str, version: int) -> Record:
    key = {"keytype": "DELETE_SUBJECT", "subject": subject, "magic": 0}
    return record(key, {"subject": subject, "version": version})


NOOP = record({"keytype": "NOOP", "magic": 0}, None)


def shown(state: State) -> dict[str, dict[int, tuple[int, str, bool]]]:
    return {
        name: {
            number: (version.id, version.content.text, version.is_deleted)
            for number, version in subject.versions.items()
        }
        for name, subject in state.subjects.items()
    }


def test_versions_and_ids() -> None:
    state = fold([NOOP, schema("a", 1, 1, "x"), schema("a", 2, 2, "y"), schema("b", 1, 1, "x")])
    assert shown(state) == {"a": {1: (1, "x", False), 2: (2, "y", False)}, "b": {1: (1, "x", False)}}
    assert state.names == ["a", "b"]
    assert state.position == 4
    context = state.contexts["."]
    assert context.highest_id == 2
    assert [version.name.qualified for version in context.by_id[1]] == ["a", "b"]
    # The text is kept once.
    assert context.by_id[1][0].content is context.by_id[1][1].content


def test_contexts_have_ids_of_their_own() -> None:
    state = fold([schema("a", 1, 1, "x"), schema(":.eu:a", 1, 1, "y"), schema(":.:b", 1, 2, "z")])
    assert list(state.subjects) == ["a", ":.eu:a", "b"]
    assert state.contexts["."].highest_id == 2
    assert state.contexts[".eu"].highest_id == 1
    assert state.context_names() == [".", ".eu"]


def test_soft_deletion_of_a_version_is_a_record_of_it() -> None:
    state = fold([schema("a", 1, 1), schema("a", 1, 1, deleted=True)])
    assert shown(state) == {"a": {1: (1, "a", True)}}
    assert state.contexts["."].content_of(1) is not None


def test_soft_deletion_of_a_subject_is_up_to_a_version() -> None:
    state = fold([schema("a", 1, 1, "x"), schema("a", 2, 2, "y"), deletion("a", 1), schema("a", 3, 3, "z")])
    assert shown(state) == {"a": {1: (1, "x", True), 2: (2, "y", False), 3: (3, "z", False)}}


def test_what_is_registered_after_a_deletion_of_the_subject_is_live() -> None:
    # Compaction keeps the deletion, whatever becomes of the versions.
    state = fold([deletion("a", 2), schema("a", 1, 3)])
    assert shown(state) == {"a": {1: (3, "a", False)}}


def test_permanent_deletion_is_a_null() -> None:
    state = fold([schema("a", 1, 1, "x"), schema("a", 2, 2, "y"), null("a", 1)])
    assert shown(state) == {"a": {2: (2, "y", False)}}
    assert state.contexts["."].content_of(1) is None
    assert state.contexts["."].highest_id == 2


def test_a_permanent_deletion_needs_no_soft_one() -> None:
    # redpanda #17091: compaction has removed the soft deletion.
    state = fold([schema("a", 1, 1), null("a", 1), null("b", 7)])
    assert shown(state) == {}
    assert state.names == []


def test_a_soft_deleted_version_needs_no_registration_before_it() -> None:
    # schema-registry #1056: compaction has removed the registration.
    state = fold([schema("a", 1, 5, "x", deleted=True)])
    assert state.contexts["."].content_of(5) is not None
    assert state.contexts["."].highest_id == 5


def test_versions_come_in_any_order() -> None:
    state = fold([schema("a", 3, 3, "z"), schema("a", 1, 1, "x")])
    assert list(state.subjects["a"].versions) == [1, 3]


@pytest.mark.parametrize(
    "foreign",
    [
        # schema-registry #2961 and #4420.
        b'{"subject":"a","version":1,"magic":1,"keytype":"SCHEMA"}',
        b'{"magic":0,"keytype":"SCHEMA","subject":"a","version":1}',
    ],
)
def test_keys_of_other_servers_are_removed_with_ours(foreign: bytes) -> None:
    topic = SchemaTopic([Record(foreign, schema("a", 1, 1).value)])
    topic.delete_subject("a")
    topic.delete_subject("a", permanent=True)
    assert shown(topic.state) == {}
    topic.compact(drops_nulls=True)
    topic.restart()
    assert shown(topic.state) == {}


def test_the_global_configuration_of_any_server() -> None:
    for key in (b'{"keytype":"CONFIG","magic":0}', b'{"subject":null,"magic":0,"keytype":"CONFIG"}'):
        state = fold([record(key, {"compatibilityLevel": "FULL"})])
        assert state.config(Name.parse("a"))["compatibilityLevel"] == "FULL"
        # There is no configuration across contexts but that of the global one.
        assert state.config(Name.parse(":.eu:a"))["compatibilityLevel"] == "BACKWARD"


def test_configurations_and_modes_by_scope() -> None:
    def config(subject: str, level: str | None) -> Record:
        key = {"keytype": "CONFIG", "subject": subject, "magic": 0}
        return record(key, None if level is None else {"compatibilityLevel": level})

    def mode(subject: str, name: str | None) -> Record:
        key = {"keytype": "MODE", "subject": subject, "magic": 0}
        return record(key, None if name is None else {"mode": name})

    name = Name.parse(":.eu:a")
    topic = SchemaTopic([config(":.__GLOBAL:", "NONE"), mode(":.__GLOBAL:", "IMPORT")])
    assert topic.state.config(name)["compatibilityLevel"] == "NONE"
    assert topic.state.mode(name) == "IMPORT"
    topic.append([config(":.eu:", "FULL"), mode(":.eu:", "READONLY")])
    assert topic.state.config(name)["compatibilityLevel"] == "FULL"
    assert topic.state.mode(name) == "READONLY"
    topic.append([config(":.eu:a", "FORWARD"), mode(":.eu:a", "READWRITE")])
    assert topic.state.config(name)["compatibilityLevel"] == "FORWARD"
    assert topic.state.mode(name) == "READWRITE"
    topic.append([config(":.eu:a", None), mode(":.eu:a", None)])
    assert topic.state.config(name)["compatibilityLevel"] == "FULL"
    topic.append([mode(":.eu:a", "READWRITE"), mode(":.__GLOBAL:", "READONLY_OVERRIDE")])
    assert topic.state.mode(name) == "READONLY"


def test_of_two_schemas_with_one_id_the_first_keeps_it() -> None:
    # schema-registry #858 and #1003, Karapace #876.
    state = fold([schema("a", 1, 11, "record"), schema("b", 1, 11, "string")])
    content = state.contexts["."].content_of(11)
    assert content is not None
    assert content.text == "record"
    assert shown(state)["b"] == {1: (11, "string", False)}


def test_a_schema_with_the_id_of_another_one_gets_its_own_when_it_is_registered() -> None:
    # schema-registry #2430: clients would write values that nobody can read.
    topic = SchemaTopic([schema("a", 1, 11, "ab"), schema("b", 1, 11, "a")])
    assert topic.register("b", "a").id == 12
    assert topic.register("c", "a").id == 12
    assert topic.by_id(11) == "ab"


def test_clear_subject_removes_what_is_soft_deleted() -> None:
    records = [schema("a", 1, 1, "x"), deletion("a", 1), schema("a", 2, 2, "y"), schema("b", 1, 3, "z")]
    records.append(record({"keytype": "CLEAR_SUBJECT", "subject": "a", "magic": 0}, {"subject": "a"}))
    assert shown(fold(records)) == {"a": {2: (2, "y", False)}, "b": {1: (3, "z", False)}}


def test_records_that_are_not_understood_change_nothing() -> None:
    # One bad record must not end the registry.
    bad = [
        record(b"nope", b"x"),
        record(b"", None),
        record({"keytype": "ASSOCIATION", "subject": "a"}, {"x": 1}),
        record({"keytype": "SCHEMA", "subject": "a", "version": 1, "magic": 1}, b"[]"),
        record({"keytype": "SCHEMA", "subject": "a", "version": 1, "magic": 1}, {"id": "x", "schema": "y"}),
        record({"keytype": "MODE", "magic": 0}, {"mod": 1}),
        record({"keytype": "DELETE_SUBJECT", "subject": "a", "magic": 0}, {"subject": "a"}),
    ]
    state = fold([*bad, schema("a", 1, 1), *bad])
    assert shown(state) == {"a": {1: (1, "a", False)}}
    assert state.position == 15


def test_a_text_that_is_no_schema_is_kept() -> None:
    assert shown(fold([schema("a", 1, 1, '{"foo": "bar"}')])) == {"a": {1: (1, '{"foo": "bar"}', False)}}


def test_the_highest_id_outlives_its_schema_and_compaction() -> None:
    topic = SchemaTopic()
    assert topic.register("a", "a").id == 1
    assert topic.register("b", "b").id == 2
    topic.delete_subject("b")
    topic.delete_subject("b", permanent=True)
    topic.compact(drops_nulls=True)
    topic.restart()
    assert topic.register("c", "c").id == 3


def test_another_registry_may_remove_the_highest_ids() -> None:
    # Confluent's registry writes a NOOP with null at each start. What this broker remembers it writes again.
    topic = SchemaTopic()
    topic.register("b", "b")
    topic.delete_subject("b")
    topic.delete_subject("b", permanent=True)
    topic.append([NOOP])
    topic.register("c", "c")
    topic.compact(drops_nulls=True)
    topic.restart()
    assert topic.state.kept_highest_ids == {".": 1}
    assert topic.register("d", "d").id == 3


def test_a_schema_that_was_deleted_for_good_gets_its_id_back() -> None:
    topic = SchemaTopic()
    assert topic.register("a", "a").id == 1
    topic.delete_subject("a")
    topic.delete_subject("a", permanent=True)
    assert topic.register("x", "x").id == 2
    again = topic.register("a", "a")
    assert (again.id, again.number) == (1, 1)


def test_folding_again_is_the_same_after_compaction() -> None:
    records = [
        schema("a", 1, 1, "x"),
        schema("a", 2, 2, "y"),
        schema("b", 1, 1, "x"),
        deletion("a", 2),
        schema("a", 3, 1, "x"),
        null("a", 1),
        record({"keytype": "CONFIG", "subject": "a", "magic": 0}, {"compatibilityLevel": "FULL"}),
        schema("b", 1, 1, "x", deleted=True),
    ]
    for drops_nulls in (False, True):
        assert shown(fold(compacted(records, drops_nulls=drops_nulls))) == shown(fold(records))
