"""Deletions, configurations, modes and contexts: tables of what is answered and refused (facts §3, 5, 6, 7, 8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from stele.schemas.definitions import Reference

from app.registry import decisions, errors
from app.registry.names import Name, scope
from app.registry.topic_format import CONFIG, MODE, Key, Record
from tests.support.schema_topic import SchemaTopic


@pytest.fixture
def topic() -> SchemaTopic:
    """Versions 1 and 2 of subject a, where 1 is soft-deleted; subject b with version 1."""
    topic = SchemaTopic()
    topic.register("a", "abc")
    topic.register("a", "ab")
    topic.delete_version("a", 1)
    topic.register("b", "x")
    return topic


# ── versions ──


@pytest.mark.parametrize(
    ("text", "number"),
    [("latest", None), ("LATEST", None), ("-1", None), (-1, None), ("1", 1), (2**31 - 1, 2**31 - 1)],
)
def test_versions_of_requests(text: str | int, number: int | None) -> None:
    assert decisions.version_number(text) == number


@pytest.mark.parametrize("text", ["0", 0, "-2", "", "first", "1.0", str(2**31), "9" * 5000, "１"])
def test_invalid_versions(text: str | int) -> None:
    with pytest.raises(errors.InvalidVersion) as error:
        decisions.version_number(text)
    assert (error.value.error_code, error.value.status) == (42202, 422)


def test_what_is_soft_deleted_is_seen_on_request(topic: SchemaTopic) -> None:
    assert topic.versions("a") == [2]
    assert topic.versions("a", deleted=True) == [1, 2]
    name = Name.parse("a")
    assert decisions.version_of(topic.state, name, None, deleted=False).number == 2
    assert decisions.version_of(topic.state, name, 1, deleted=True).is_deleted
    with pytest.raises(errors.VersionNotFound):
        decisions.version_of(topic.state, name, 1, deleted=False)
    with pytest.raises(errors.SubjectNotFound):
        topic.versions("nobody", deleted=True)


def test_a_subject_without_live_versions_is_not_found(topic: SchemaTopic) -> None:
    topic.delete_subject("a")
    for number in (None, 1, 7):
        with pytest.raises(errors.SubjectNotFound):
            decisions.version_of(topic.state, Name.parse("a"), number, deleted=False)


# ── deletions ──

Refused = list[tuple[Callable[[SchemaTopic], object], type[errors.RegistryError], int, str]]

REFUSED: Refused = [
    (lambda t: t.delete_version("no", 1), errors.SubjectNotFound, 40401, "Subject 'no' not found."),
    (lambda t: t.delete_version("a", 7), errors.VersionNotFound, 40402, "Version 7 not found."),
    (
        lambda t: t.delete_version("a", 1),
        errors.VersionSoftDeleted,
        40406,
        "Subject 'a' Version 1 was soft deleted. Set permanent=true to delete permanently",
    ),
    (
        lambda t: t.delete_version("a", 2, permanent=True),
        errors.VersionNotSoftDeleted,
        40407,
        "Subject 'a' Version 2 was not deleted first before being permanently deleted",
    ),
    (lambda t: t.delete_subject("no"), errors.SubjectNotFound, 40401, "Subject 'no' not found."),
    (
        lambda t: (t.delete_subject("a"), t.delete_subject("a")),
        errors.SubjectSoftDeleted,
        40404,
        "Subject 'a' was soft deleted.Set permanent=true to delete permanently",
    ),
    (
        lambda t: t.delete_subject("a", permanent=True),
        errors.SubjectNotSoftDeleted,
        40405,
        "Subject 'a' was not deleted first before being permanently deleted",
    ),
    (lambda t: t.delete_version("a", "0"), errors.InvalidVersion, 42202, "The specified version '0' is not"),
]


@pytest.mark.parametrize(("call", "kind", "code", "text"), REFUSED)
def test_refused_deletions(
    topic: SchemaTopic,
    call: Callable[[SchemaTopic], object],
    kind: type[errors.RegistryError],
    code: int,
    text: str,
) -> None:
    with pytest.raises(kind) as error:
        call(topic)
    assert error.value.error_code == code
    assert str(error.value).startswith(text)


def test_deletions_answer_what_they_delete(topic: SchemaTopic) -> None:
    assert topic.delete_version("a", "latest") == 2
    assert topic.delete_version("a", 1, permanent=True) == 1
    assert topic.delete_version("a", "latest", permanent=True) == 2
    with pytest.raises(errors.SubjectNotFound):
        topic.versions("a", deleted=True)


def test_a_soft_deletion_of_a_subject_is_of_what_is_live(topic: SchemaTopic) -> None:
    # redpanda #2066.
    assert topic.delete_subject("a") == [2]
    assert topic.delete_subject("a", permanent=True) == [1, 2]


def test_soft_deleted_schemas_stay_readable_by_id(topic: SchemaTopic) -> None:
    topic.delete_subject("a")
    assert topic.by_id(1) == "abc"
    topic.delete_subject("a", permanent=True)
    assert topic.by_id(1) is None


def test_the_last_permanent_deletion_takes_configuration_and_mode_along(topic: SchemaTopic) -> None:
    topic.set_config("a", compatibilityLevel="NONE")
    topic.set_mode("a", "READWRITE")
    topic.delete_version("a", 1, permanent=True)
    assert "a" in topic.state.configs
    topic.delete_subject("a")
    topic.delete_subject("a", permanent=True)
    assert "a" not in topic.state.configs
    assert "a" not in topic.state.modes


@pytest.fixture
def referring(topic: SchemaTopic) -> SchemaTopic:
    """As ``topic``, where c refers to version 1 of b."""
    topic.register("c", "c", references=[Reference("x", "b", 1)])
    return topic


def test_what_others_refer_to_is_not_deleted(referring: SchemaTopic) -> None:
    text = "One or more references exist to the schema {magic=1,keytype=SCHEMA,subject=b,version=1}."
    for delete in (lambda: referring.delete_version("b", 1), lambda: referring.delete_subject("b")):
        with pytest.raises(errors.ReferenceExists) as error:
            delete()
        assert (error.value.error_code, str(error.value), error.value.ids) == (42206, text, [4])
    # A soft-deleted schema stays readable, so it needs what it refers to.
    referring.delete_subject("c")
    with pytest.raises(errors.ReferenceExists):
        referring.delete_version("b", 1)
    referring.delete_subject("c", permanent=True)
    assert referring.delete_version("b", 1) == 1


def test_a_subject_that_refers_to_itself_is_deleted_as_a_whole(topic: SchemaTopic) -> None:
    topic.register("b", "x", references=[Reference("x", "b", 1)])
    with pytest.raises(errors.ReferenceExists):
        topic.delete_version("b", 1)
    assert topic.delete_subject("b") == [1, 2]
    assert topic.delete_subject("b", permanent=True) == [1, 2]


def test_who_refers_to_a_version(referring: SchemaTopic) -> None:
    version = decisions.version_of(referring.state, Name.parse("b"), 1, deleted=False)
    assert decisions.referring_ids(referring.state, version, deleted=False) == [4]
    referring.delete_subject("c")
    assert decisions.referring_ids(referring.state, version, deleted=False) == []
    assert decisions.referring_ids(referring.state, version, deleted=True) == [4]


# ── configuration ──


def config(topic: SchemaTopic, subject: str | None, *, default_to_global: bool = False) -> Any:
    return decisions.config(topic.state, scope(subject), default_to_global=default_to_global)


def test_the_default_configuration(topic: SchemaTopic) -> None:
    assert config(topic, None) == {"compatibilityLevel": "BACKWARD"}
    assert config(topic, "a", default_to_global=True) == {"compatibilityLevel": "BACKWARD"}
    with pytest.raises(errors.ConfigNotFound) as error:
        config(topic, "a")
    assert error.value.error_code == 40408
    assert str(error.value) == "Subject 'a' does not have subject-level compatibility configured"


def test_a_change_is_of_the_members_that_it_has(topic: SchemaTopic) -> None:
    assert topic.set_config("a", compatibilityLevel="full_transitive") == {
        "compatibilityLevel": "FULL_TRANSITIVE"
    }
    topic.set_config("a", normalize=True)
    assert config(topic, "a") == {"compatibilityLevel": "FULL_TRANSITIVE", "normalize": True}
    topic.set_config("a", normalize=None)
    assert config(topic, "a") == {"compatibilityLevel": "FULL_TRANSITIVE"}
    topic.set_config("a", compatibilityLevel=None)
    with pytest.raises(errors.ConfigNotFound):
        config(topic, "a")


def test_each_member_is_that_of_the_innermost_scope(topic: SchemaTopic) -> None:
    topic.set_config(None, compatibilityLevel="NONE", normalize=True)
    topic.set_config("a", compatibilityLevel="FULL")
    assert config(topic, "a", default_to_global=True) == {"compatibilityLevel": "FULL", "normalize": True}
    topic.set_config(None, compatibilityLevel=None)
    assert config(topic, None) == {"compatibilityLevel": "BACKWARD", "normalize": True}


def test_refused_configurations(topic: SchemaTopic) -> None:
    with pytest.raises(errors.InvalidLevel) as error:
        topic.set_config("a", compatibilityLevel="SOME")
    assert error.value.error_code == 42203
    assert str(error.value) == (
        "Invalid compatibility level. Valid values are none, backward, forward, full, "
        "backward_transitive, forward_transitive, and full_transitive"
    )
    with pytest.raises(errors.InvalidRules):
        topic.set_config("a", defaultRuleSet={"domainRules": [{"type": "CEL"}]})
    topic.set_mode("a", "READONLY")
    with pytest.raises(errors.NotPermitted):
        topic.set_config("a", compatibilityLevel="FULL")


def test_removed_configurations(topic: SchemaTopic) -> None:
    topic.set_config("a", compatibilityLevel="FULL")
    removed = topic.change(lambda state: decisions.delete_config(state, scope("a")))
    assert removed.config == {"compatibilityLevel": "FULL"}
    with pytest.raises(errors.SubjectNotFound):
        decisions.delete_config(topic.state, scope("a"))
    assert decisions.delete_config(topic.state, scope(None)).config == {"compatibilityLevel": "BACKWARD"}


# ── mode ──


def mode(topic: SchemaTopic, subject: str | None, *, default_to_global: bool = False) -> str:
    return decisions.mode(topic.state, scope(subject), default_to_global=default_to_global)


def test_modes(topic: SchemaTopic) -> None:
    assert mode(topic, None) == "READWRITE"
    assert mode(topic, "a", default_to_global=True) == "READWRITE"
    with pytest.raises(errors.ModeNotFound) as error:
        mode(topic, "a")
    assert error.value.error_code == 40409
    assert topic.set_mode("a", "readonly") == "READONLY"
    assert mode(topic, "a") == "READONLY"


@pytest.mark.parametrize(
    ("subject", "name"), [("a", "SOME"), (None, ""), ("a", "FORWARD"), (None, "FORWARD")]
)
def test_invalid_modes(topic: SchemaTopic, subject: str | None, name: str) -> None:
    with pytest.raises(errors.InvalidMode) as error:
        topic.set_mode(subject, name)
    assert error.value.error_code == 42204


def test_the_mode_forward_is_for_all_contexts(topic: SchemaTopic) -> None:
    assert topic.set_mode(":.__GLOBAL:", "FORWARD") == "FORWARD"


def test_nothing_changes_in_mode_readonly_but_the_mode(topic: SchemaTopic) -> None:
    topic.set_mode(None, "READONLY")
    for change in (
        lambda: topic.register("a", "a"),
        lambda: topic.delete_version("a", 2),
        lambda: topic.delete_subject("a"),
        lambda: topic.set_config("a", compatibilityLevel="FULL"),
        lambda: topic.set_config(None, compatibilityLevel="FULL"),
    ):
        with pytest.raises(errors.NotPermitted) as error:
            change()
        assert error.value.error_code == 42205
    # A serializer that registers what is there already goes on.
    assert topic.register("a", "ab").id == 2
    assert topic.register(":.eu:a", "ab").id == 1
    topic.set_mode(None, "READWRITE")
    assert topic.register("a", "a").id == 4


def test_import_is_for_scopes_without_live_schemas(topic: SchemaTopic) -> None:
    for subject in ("a", None, ":.__GLOBAL:"):
        with pytest.raises(errors.NotPermitted):
            topic.set_mode(subject, "IMPORT")
    assert topic.set_mode("new", "IMPORT") == "IMPORT"
    assert topic.set_mode(":.eu:", "IMPORT") == "IMPORT"
    assert topic.set_mode("a", "IMPORT", force=True) == "IMPORT"
    assert topic.versions("a", deleted=True) == [1, 2]


def test_import_removes_what_is_soft_deleted(topic: SchemaTopic) -> None:
    topic.delete_subject("a")
    topic.set_mode("a", "IMPORT")
    with pytest.raises(errors.SubjectNotFound):
        topic.versions("a", deleted=True)
    topic.compact(drops_nulls=True)
    topic.restart()
    # No id is given twice all the same.
    assert topic.register("b", "").id == 4


def test_removed_modes(topic: SchemaTopic) -> None:
    topic.set_mode("a", "READONLY")
    topic.set_mode("b", "READONLY")
    assert topic.change(lambda s: decisions.delete_mode(s, scope("a"), recursive=False)).mode == "READONLY"
    with pytest.raises(errors.SubjectNotFound):
        decisions.delete_mode(topic.state, scope("a"), recursive=False)
    assert topic.change(lambda s: decisions.delete_mode(s, scope(None), recursive=True)).mode == "READWRITE"
    assert topic.state.modes == {}


# ── contexts ──


def test_contexts_are_deleted_when_they_are_empty(topic: SchemaTopic) -> None:
    topic.register(":.eu:a", "a")
    topic.set_config(":.eu:", compatibilityLevel="NONE")
    topic.set_mode(":.eu:", "READWRITE")
    topic.append([Record(b'{"keytype":"CONTEXT","tenant":"default","context":".eu"}', b'{"context":".eu"}')])
    assert topic.state.context_names() == [".", ".eu"]
    for _ in range(2):
        with pytest.raises(errors.ContextNotEmpty) as error:
            decisions.delete_context(topic.state, ".eu")
        assert error.value.error_code == 42211
        if topic.state.subjects[":.eu:a"].live():
            topic.delete_subject(":.eu:a")
    topic.delete_subject(":.eu:a", permanent=True)
    assert topic.state.context_names() == [".", ".eu"]
    topic.change(lambda state: decisions.delete_context(state, ":.eu:"))
    assert topic.state.context_names() == ["."]
    assert topic.state.configs == {}
    assert topic.state.modes == {}
    # Its ids are not given again.
    assert topic.register(":.eu:a", "b").id == 2


def test_the_default_context_stays() -> None:
    with pytest.raises(errors.NotPermitted):
        decisions.delete_context(SchemaTopic().state, ".")


def test_nulls_are_written_for_the_forms_that_the_topic_has() -> None:
    topic = SchemaTopic(
        [Record(b'{"subject":null,"magic":0,"keytype":"CONFIG"}', b'{"compatibilityLevel":"FULL"}')]
    )
    removed = topic.change(lambda state: decisions.delete_config(state, scope(None)))
    assert {record.key for record in removed.records} == {
        Key(CONFIG).encoded(),
        b'{"subject":null,"magic":0,"keytype":"CONFIG"}',
    }
    assert decisions.nulls(topic.state, Key(MODE, "a")) == [(Key(MODE, "a").encoded(), None, False)]
