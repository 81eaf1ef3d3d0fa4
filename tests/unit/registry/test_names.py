"""Names of subjects and contexts (facts: contexts)."""

from __future__ import annotations

import pytest

from app.registry.errors import InvalidSubject
from app.registry.names import Name, matcher, new_subject, scope


@pytest.mark.parametrize(
    ("text", "name", "qualified"),
    [
        ("orders", Name(".", "orders"), "orders"),
        (":.:orders", Name(".", "orders"), "orders"),
        (":.eu:orders", Name(".eu", "orders"), ":.eu:orders"),
        (":.eu:", Name(".eu", ""), ":.eu:"),
        (":.eu", Name(".eu", ""), ":.eu:"),
        (":.eu:a:b", Name(".eu", "a:b"), ":.eu:a:b"),
        (":orders", Name(".", ":orders"), ":orders"),
        ("a/b {c}", Name(".", "a/b {c}"), "a/b {c}"),
        ("", Name(".", ""), ""),
        (":.:", Name(".", ""), ""),
        (":.::.:orders", Name(".", "orders"), "orders"),
        (":.::.eu:orders", Name(".eu", "orders"), ":.eu:orders"),
        (":.eu::.us:orders", Name(".eu", ":.us:orders"), ":.eu::.us:orders"),
    ],
)
def test_names(text: str, name: Name, qualified: str) -> None:
    assert Name.parse(text) == name
    assert name.qualified == qualified
    assert Name.parse(qualified) == name


@pytest.mark.parametrize(
    "text", ["", ":.eu:", ":.__GLOBAL:a", "__GLOBAL", ":.eu:__EMPTY", "a\nb", "a\x7f", "a\x00", "a\ud800"]
)
def test_subjects_that_cannot_be_registered(text: str) -> None:
    with pytest.raises(InvalidSubject):
        new_subject(text)


def test_scopes_from_the_inside_out() -> None:
    assert Name.parse("a").scopes == ("a", "", ":.__GLOBAL:")
    assert Name.parse(":.eu:a").scopes == (":.eu:a", ":.eu:", ":.__GLOBAL:")
    assert scope(None).scopes == ("", ":.__GLOBAL:")
    assert scope(":.__GLOBAL:").scopes == (":.__GLOBAL:",)


def test_what_a_scope_includes() -> None:
    a, eu = Name.parse("a"), Name.parse(":.eu:a")
    assert a.includes(a)
    assert not a.includes(eu)
    assert scope(None).includes(a)
    assert not scope(None).includes(eu)
    assert scope(":.eu:").includes(eu)
    assert scope(":.__GLOBAL:").includes(a)
    assert scope(":.__GLOBAL:").includes(eu)


def test_a_reference_is_to_the_context_of_its_schema() -> None:
    assert Name.parse(":.eu:a").near("b") == Name(".eu", "b")
    assert Name.parse(":.eu:a").near(":.us:b") == Name(".us", "b")
    assert Name.parse(":.eu:a").near(":.:b") == Name(".", "b")


@pytest.mark.parametrize(
    ("prefix", "matches"),
    [
        ("", ["orders", "other"]),
        ("ord", ["orders"]),
        (":*:", ["orders", "other", ":.eu:orders"]),
        (":*:ord", ["orders", ":.eu:orders"]),
        (":.eu:", [":.eu:orders"]),
        (":.eu:x", []),
        (":.:o", ["orders", "other"]),
    ],
)
def test_prefixes(prefix: str, matches: list[str]) -> None:
    is_meant = matcher(prefix)
    assert [text for text in ("orders", "other", ":.eu:orders") if is_meant(Name.parse(text))] == matches
