"""Registering, looking up and checking schemas: ids, versions, equality and compatibility (facts §4, 5, 7)."""

from __future__ import annotations

import pytest
from stele.schemas.definitions import Reference

from app.registry import errors, registrations
from app.registry.contents import Content
from app.registry.definitions import LEVELS
from app.registry.state import Version
from app.registry.topic_format import SCHEMA, Key, SchemaValue, schema_record
from tests.support.schema_topic import SchemaTopic


@pytest.fixture
def topic() -> SchemaTopic:
    return SchemaTopic()


def place(version: Version) -> tuple[int, int]:
    return version.id, version.number


# ── ids and versions ──


def test_ids_and_versions_count_from_one(topic: SchemaTopic) -> None:
    assert place(topic.register("a", "abc")) == (1, 1)
    assert place(topic.register("a", "ab")) == (2, 2)
    assert place(topic.register("b", "x")) == (3, 1)


def test_the_same_schema_again_is_the_same_version(topic: SchemaTopic) -> None:
    topic.register("a", "abc")
    topic.register("a", "ab")
    records = len(topic.records)
    assert place(topic.register("a", "abc")) == (1, 1)
    assert place(topic.register("a", "a b c")) == (1, 1)
    assert len(topic.records) == records


def test_the_same_schema_under_another_subject_has_the_same_id(topic: SchemaTopic) -> None:
    topic.register("a", "abc")
    assert place(topic.register("b", "a bc")) == (1, 1)
    # Contexts have ids of their own.
    topic.register(":.eu:x", "x")
    assert place(topic.register(":.eu:b", "abc")) == (2, 1)


def test_the_order_counts_unless_it_is_normalized(topic: SchemaTopic) -> None:
    assert topic.register("a", "abc").id == 1
    assert topic.register("a", "cba").id == 2
    # By preference the one whose text is the normalized one.
    assert place(topic.register("a", "bca", normalize=True)) == (1, 1)
    assert topic.register("b", "bca", normalize=True).content.text == "abc"
    assert topic.register("b", "bca").id == 3


def test_the_type_counts(topic: SchemaTopic) -> None:
    topic.set_config(None, compatibilityLevel="NONE")
    assert topic.register("a", "abc").id == 1
    assert place(topic.register("a", "abc", schema_type="JSON")) == (2, 2)


def test_references_count(topic: SchemaTopic) -> None:
    # Karapace #791: the text alone found another version.
    topic.register("ref", "ab")
    topic.register("ref", "a")
    first = topic.register("a", "x", references=[Reference("r", "ref", 1)])
    second = topic.register("a", "x", references=[Reference("r", "ref", 2)])
    assert (first.number, second.number) == (1, 2)
    assert first.id != second.id
    assert topic.look_up("a", "x", references=[Reference("r", "ref", 1)]) is first
    # -1 is the latest version, and stays it.
    assert topic.register("a", "x", references=[Reference("r", "ref", -1)]) is second
    topic.register("ref", "")
    assert second.content.references == (Reference("r", "ref", 2),)


def test_references_that_lead_nowhere_are_refused(topic: SchemaTopic) -> None:
    topic.register(":.eu:ref", "ab")
    for subject, version in (("ref", 1), (":.eu:ref", 2), (":.eu:ref", 0)):
        with pytest.raises(errors.InvalidSchemaText) as error:
            topic.register("a", "x", references=[Reference("r", subject, version)])
        assert error.value.error_code == 42201
    # Unqualified subjects are in the context of the schema.
    topic.register(":.eu:a", "x", references=[Reference("r", "ref", 1)])
    topic.register("a", "x", references=[Reference("r", ":.eu:ref", 1)])


def test_a_text_in_another_form_gives_way_to_the_one_that_has_the_id() -> None:
    # As Karapace writes it. The GUID of an id is that of one text.
    value = SchemaValue(7, Content(schema_type="AVRO", text='{"b": 1, "a": 2}'), False)
    topic = SchemaTopic([schema_record("a", 1, value)])
    version = topic.register("b", '{"b":1,"a":2}')
    assert version.id == 7
    assert version.content.text == '{"b": 1, "a": 2}'
    assert topic.register("b", '{"b":1,"a":2}') is version


def test_a_version_in_a_body_must_be_the_next_one(topic: SchemaTopic) -> None:
    topic.register("a", "abc", version=1)
    with pytest.raises(errors.InvalidSchemaText) as error:
        topic.register("a", "ab", version=1)
    assert error.value.error_code == 42201
    assert topic.register("a", "ab", version=2).number == 2
    # What is registered already has its version.
    assert topic.register("a", "abc", version=9).number == 1


def test_an_id_in_a_body_needs_mode_import(topic: SchemaTopic) -> None:
    with pytest.raises(errors.NotPermitted):
        topic.register("a", "abc", schema_id=5)
    topic.register("a", "abc")
    assert topic.register("a", "abc", schema_id=1).number == 1
    with pytest.raises(errors.IdMismatch) as error:
        topic.register("a", "abc", schema_id=5)
    assert error.value.error_code == 42207


def test_ids_end_at_int32() -> None:
    value = SchemaValue(2**31 - 1, Content(schema_type="AVRO", text="a"), False)
    topic = SchemaTopic([schema_record("a", 1, value)])
    with pytest.raises(errors.StoreFailed):
        topic.register("b", "b")


# ── soft-deleted versions ──


def test_a_soft_deleted_schema_comes_back_as_the_next_version(topic: SchemaTopic) -> None:
    topic.register("a", "abc")
    topic.register("a", "ab")
    topic.delete_subject("a")
    assert place(topic.register("a", "a b c")) == (1, 3)
    # Version 1 has the same id, so nobody needs it.
    assert topic.versions("a", deleted=True) == [2, 3]
    assert Key(SCHEMA, "a", 1).encoded() in {r.key for r in topic.records if r.value is None}


def test_it_stays_if_others_refer_to_it(topic: SchemaTopic) -> None:
    # schema-registry #4277, also if the other schema is soft-deleted.
    topic.register("a", "abc")
    topic.register("b", "x", references=[Reference("r", "a", 1)])
    records = [*topic.records]
    deleted = schema_record("a", 1, SchemaValue(1, Content(schema_type="AVRO", text="abc"), True))
    topic = SchemaTopic([*records, deleted])
    topic.delete_subject("b")
    assert place(topic.register("a", "abc")) == (1, 2)
    assert topic.versions("a", deleted=True) == [1, 2]


def test_compatibility_is_with_live_versions(topic: SchemaTopic) -> None:
    topic.register("a", "abc")
    topic.register("a", "a")
    topic.delete_version("a", 2)
    assert topic.register("a", "bc").number == 3
    topic.delete_subject("a")
    assert topic.register("a", "xyz").number == 4


# ── looking up ──


def test_looking_up(topic: SchemaTopic) -> None:
    topic.register("a", "cab")
    topic.register("b", "x")
    assert topic.look_up("a", "c a b").number == 1
    for subject, text, kind in (
        ("no", "cab", errors.SubjectNotFound),
        ("b", "cab", errors.SchemaNotFound),
        ("a", "abc", errors.SchemaNotFound),
    ):
        with pytest.raises(kind):
            topic.look_up(subject, text)
    assert topic.look_up("a", "abc", normalize=True).number == 1
    topic.delete_subject("a")
    with pytest.raises(errors.SubjectNotFound):
        topic.look_up("a", "cab")
    assert topic.look_up("a", "cab", deleted=True).is_deleted


def test_a_normalized_schema_is_found_by_its_other_forms(topic: SchemaTopic) -> None:
    # schema-registry #3841: registered with normalize=true, looked up without.
    version = topic.register("a", "cab", normalize=True)
    assert topic.look_up("a", "cab") is version
    assert topic.look_up("a", "bca") is version


def test_a_schema_that_cannot_be_parsed_any_more_is_found_by_its_text(topic: SchemaTopic) -> None:
    version = topic.register("a", "abc")
    version.content.canonical = version.content.normalized = b""
    assert topic.look_up("a", "abc") is version
    with pytest.raises(errors.SchemaNotFound):
        topic.look_up("a", "ab")


# ── compatibility ──

# Schemas that stand before a new one, oldest first, the new one, and the levels that allow it.
ALL: set[str] = set(LEVELS)
COMPATIBILITY: list[tuple[list[str], str, set[str]]] = [
    ([], "x", ALL),
    (["ab"], "a", {"NONE", "BACKWARD", "BACKWARD_TRANSITIVE"}),
    (["a"], "ab", {"NONE", "FORWARD", "FORWARD_TRANSITIVE"}),
    (["ab"], "ba", ALL),
    (["ab"], "bc", {"NONE"}),
    # The last version allows it, the one before does not.
    (["b", "ab"], "a", {"NONE", "BACKWARD"}),
    (["b", "a"], "ac", {"NONE", "FORWARD"}),
    (["x", "ab"], "ba", ALL - {"BACKWARD_TRANSITIVE", "FORWARD_TRANSITIVE", "FULL_TRANSITIVE"}),
]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("history", "text", "allowed"), COMPATIBILITY)
def test_levels(topic: SchemaTopic, level: str, history: list[str], text: str, allowed: set[str]) -> None:
    for old in history:
        topic.register("a", old, force=True)
    topic.set_config("a", compatibilityLevel=level)
    assert (topic.check("a", text) == []) is (level in allowed)
    if level in allowed:
        assert topic.register("a", text).number == len(history) + 1
        return
    with pytest.raises(errors.IncompatibleSchema) as error:
        topic.register("a", text)
    assert (error.value.error_code, error.value.status) == (409, 409)
    assert topic.register("a", text, force=True).number == len(history) + 1


def test_the_first_version_that_does_not_fit_is_named(topic: SchemaTopic) -> None:
    topic.set_config("a", compatibilityLevel="FULL_TRANSITIVE")
    for text in ("ab", "x", "ba"):
        topic.register("a", text, force=True)
    assert topic.check("a", "bab") == [
        "version 2: does not read old data",
        "version 2: is not read by the old schema",
    ]


def test_a_long_history_is_compared_in_parts(topic: SchemaTopic) -> None:
    topic.set_config("a", compatibilityLevel="BACKWARD_TRANSITIVE")
    topic.register("a", "b", force=True)
    for number in range(40):
        topic.register("a", "a" * (number + 1), force=True)
    assert topic.check("a", "aaa") == ["version 1: does not read old data"]
    assert topic.check("a", "b") == ["version 41: does not read old data"]


def test_a_check_of_one_version_is_of_it_alone(topic: SchemaTopic) -> None:
    topic.set_config("a", compatibilityLevel="BACKWARD_TRANSITIVE")
    topic.register("a", "b", force=True)
    topic.register("a", "abc", force=True)
    assert topic.check("a", "ab", 2) == []
    assert topic.check("a", "ab", 1) == ["version 1: does not read old data"]
    assert topic.check("a", "ab", "latest") == []
    assert topic.check("a", "ab") != []
    # An unknown subject is compatible with everything, its version 1 is not there.
    assert topic.check("no", "x", "latest") == []
    assert topic.check("no", "x") == []
    for subject, version in (("no", 1), ("a", 3)):
        with pytest.raises(errors.VersionNotFound):
            topic.check(subject, "x", version)
    topic.delete_version("a", 1)
    with pytest.raises(errors.VersionNotFound):
        topic.check("a", "b", 1)


def test_only_versions_of_a_group_are_compared(topic: SchemaTopic) -> None:
    topic.set_config("a", compatibilityGroup="major")
    one, two = {"properties": {"major": "1"}}, {"properties": {"major": "2"}}
    topic.register("a", "ab", metadata=one)
    assert topic.register("a", "x", metadata=two).number == 2
    with pytest.raises(errors.IncompatibleSchema):
        topic.register("a", "xy", metadata=two)
    assert topic.register("a", "a", metadata=one).number == 3
    # Without metadata it is of the group of the last version.
    assert topic.check("a", "x") == ["version 3: does not read old data"]


# ── metadata and rules ──


def test_other_metadata_are_another_schema(topic: SchemaTopic) -> None:
    first = topic.register("a", "abc", metadata={"properties": {"owner": "x"}})
    second = topic.register("a", "abc", metadata={"properties": {"owner": "y"}})
    assert (first.id, second.id) == (1, 2)
    assert topic.register("a", "abc", metadata={"properties": {"owner": "x"}}) is first


def test_a_serializer_that_sends_no_metadata_finds_its_schema(topic: SchemaTopic) -> None:
    topic.register("a", "abc", metadata={"properties": {"owner": "x"}})
    topic.register("a", "ab", metadata={"properties": {"owner": "y"}})
    assert place(topic.register("a", "abc")) == (1, 1)
    assert topic.look_up("a", "abc").number == 1


def test_metadata_are_inherited_unless_they_are_sent(topic: SchemaTopic) -> None:
    owner = {"properties": {"owner": "x"}}
    rules = {"domainRules": [{"name": "r"}]}
    topic.register("a", "abc", metadata=owner, rule_set=rules)
    inherited = topic.register("a", "ab")
    assert (inherited.content.metadata, inherited.content.rule_set) == (owner, rules)
    bare = topic.register("a", "a", metadata={}, rule_set={})
    assert (bare.content.metadata, bare.content.rule_set) == (None, None)


def test_the_configuration_adds_metadata_and_rules(topic: SchemaTopic) -> None:
    topic.set_config(
        None,
        defaultMetadata={"properties": {"owner": "default", "team": "default"}},
        overrideMetadata={"properties": {"team": "override"}},
        defaultRuleSet={"domainRules": [{"name": "r", "expr": "1"}]},
    )
    version = topic.register("a", "abc", metadata={"properties": {"owner": "x", "team": "x"}})
    assert version.content.metadata == {"properties": {"owner": "x", "team": "override"}}
    assert version.content.rule_set == {"domainRules": [{"name": "r", "expr": "1"}]}


def test_rules_are_checked(topic: SchemaTopic) -> None:
    with pytest.raises(errors.InvalidRules) as error:
        topic.register("a", "abc", rule_set={"domainRules": [{"type": "CEL"}]})
    assert error.value.error_code == 42210


# ── mode IMPORT ──


@pytest.fixture
def importing(topic: SchemaTopic) -> SchemaTopic:
    topic.set_mode(None, "IMPORT")
    return topic


def test_import_takes_ids_and_versions(importing: SchemaTopic) -> None:
    assert place(importing.register("a", "abc", schema_id=24, version=3)) == (24, 3)
    assert place(importing.register("a", "x", schema_id=7, version=1)) == (7, 1)
    assert place(importing.register("a", "y", schema_id=8)) == (8, 4)
    assert place(importing.register("b", "abc", schema_id=24, version=1)) == (24, 1)
    importing.set_mode(None, "READWRITE")
    assert importing.register("c", "z").id == 25


def test_import_may_be_repeated(importing: SchemaTopic) -> None:
    # redpanda #26331.
    importing.register("a", "abc", schema_id=24, version=1)
    records = len(importing.records)
    assert place(importing.register("a", "abc", schema_id=24, version=1)) == (24, 1)
    assert place(importing.register("a", "abc", schema_id=24)) == (24, 1)
    assert len(importing.records) == records


def test_import_needs_an_id(importing: SchemaTopic) -> None:
    with pytest.raises(errors.NotPermitted) as error:
        importing.register("a", "abc")
    assert error.value.error_code == 42205
    # What is there is found without one.
    importing.register("a", "abc", schema_id=24)
    assert importing.register("a", "abc").id == 24


def test_an_imported_id_replaces_no_other_schema(importing: SchemaTopic) -> None:
    # schema-registry #1748.
    importing.register("a", "abc", schema_id=24)
    for subject in ("a", "b"):
        with pytest.raises(errors.NotPermitted):
            importing.register(subject, "x", schema_id=24)
    with pytest.raises(errors.NotPermitted):
        importing.register("a", "x", schema_id=25, version=1)
    with pytest.raises(errors.IdMismatch):
        importing.register("a", "abc", schema_id=25)


def test_a_deleted_schema_may_be_imported_with_another_id(topic: SchemaTopic) -> None:
    # schema-registry #1062.
    topic.register("a", "abc")
    topic.delete_subject("a")
    topic.set_mode("a", "IMPORT", force=True)
    assert place(topic.register("a", "abc", schema_id=9, version=1)) == (9, 1)
    assert topic.by_id(1) is None
    topic.set_mode("a", "READWRITE")
    topic.compact(drops_nulls=True)
    topic.restart()
    assert topic.register("b", "x").id == 10


def test_import_checks_no_compatibility_and_adds_no_metadata(importing: SchemaTopic) -> None:
    importing.set_config(None, defaultMetadata={"properties": {"owner": "x"}})
    importing.register("a", "abc", schema_id=1)
    assert importing.register("a", "x", schema_id=2).content.metadata is None


# ── what has changed in between ──


def test_a_decision_is_about_the_state_as_it_is(topic: SchemaTopic) -> None:
    """Another broker deletes the schema to which this one is about to refer."""
    topic.register("ref", "a")
    proposal = topic.proposal("a", "x", references=[Reference("r", "ref", 1)])
    topic.delete_subject("ref")
    topic.delete_subject("ref", permanent=True)
    with pytest.raises(errors.InvalidSchemaText):
        registrations.register(topic.state, proposal, registrations.Comparisons())


def test_nothing_is_parsed_for_a_schema_that_this_registry_has_written() -> None:
    topic = SchemaTopic()
    topic.register("a", "abc")
    again = SchemaTopic(topic.records)
    for text in ("abc", "ab"):
        outcome = registrations.register(again.state, again.proposal("b", text), registrations.Comparisons())
        assert isinstance(outcome, registrations.Registration)
