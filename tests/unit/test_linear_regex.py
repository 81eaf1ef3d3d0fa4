"""Expressions of clients match as Python's do, in linear time, and are bounded."""

from __future__ import annotations

import itertools
import re

import pytest

from app import linear_regex
from app.linear_regex import (
    PATTERN_CHARACTERS_MAX,
    STATES_MAX,
    VISITS_PER_TURN,
    InvalidPattern,
    LinearRegex,
)

TEXTS = [
    "",
    *map("".join, itertools.chain.from_iterable(itertools.product("ab1-", repeat=n) for n in range(1, 5))),
]
PATTERNS = [
    "", "a", "ab", "a|b", "a*", "a+", "a?b", "(a|b)*", "(?:ab)+", "[ab]+", "[^a]+", "[a-b1]*", ".*", "a.b",
    r"\d+", r"\D*", r"\w+", r"\W", r"a\-b", "[-a]+", "[a-]+", "[]a]", "a{2}", "a{1,}b", "(ab){1,2}", "a{0}", "^a$", "^a|b$",
    "a^b", "a$b", "(^a)b*", "a*?b", "(a*)*", "(a|)+b", "(|a)*", "((a?)(b?))*1", "a{,2}", "x|", "(^|a)b", r"[\d-]+", "$^",
    r"[^\d]+", r"[\w-]+", r"[\W1]", "[a-b1-2]+", "[a1-9b]*", r"[^\w-]?", r"\S\s?", r"[^a\W]+",
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_matches_what_python_matches(pattern: str) -> None:
    ours = LinearRegex(pattern)
    # To Python 3.11 an empty minimum means 0; to RE2 the braces are literals.
    theirs = re.compile(pattern.replace("{,", r"\{,"), re.ASCII)
    for text in TEXTS:
        # Python's $ also matches before a line end at the end; there is none here.
        assert ours.matches(text) == bool(theirs.fullmatch(text)), (pattern, text)


def test_a_pattern_that_backtracks_without_end_elsewhere_ends() -> None:
    regex = LinearRegex("(a|a)*(a*)*b")
    assert not regex.matches("a" * 20_000)
    assert regex.matches("a" * 20_000 + "b")


def test_more_characters_than_are_remembered_match_correctly() -> None:
    regex = LinearRegex("[^x]+")
    assert regex.matches("".join(map(chr, range(0x4E00, 0x4E00 + 5000))))
    assert not regex.matches("".join(map(chr, range(0x4E00, 0x4E00 + 5000))) + "x")


@pytest.mark.parametrize(
    "pattern",
    [
        "(", ")", "a)", "(a", "[", "[a", "[b-a]", "*", "+a", "a**", "(?=a)", "(?i)a", "\\", r"\b", r"\1", r"[\b]", "[[:alpha:]]",
        "a{1001}", "a{2,1}", "(a{1000}){1000}", "(){1001}", "((){1000}){1000}", "(((){1000}){1000}){1000}", "(((|){1000}){1000}){1000}", "(" * 60 + ")" * 60, "a" * (PATTERN_CHARACTERS_MAX + 1),
    ],
)  # fmt: skip
def test_an_invalid_or_oversized_pattern_is_refused_with_a_reason(pattern: str) -> None:
    with pytest.raises(InvalidPattern, match=r"regular expression"):
        LinearRegex(pattern)


# Each makes many states at once possible, or many sets of states.
COSTLY = [
    "(.?){480}x",
    "([ab]?){400}c",
    "(a*b*c*d*){100}",
    "(a|b|c|d|.){90}.*y",
    "(.*a.{12}|.*b.{13}|.*c.{14})*z",
]


@pytest.mark.parametrize("pattern", COSTLY)
def test_a_turn_of_a_costly_pattern_is_short(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    regex = LinearRegex(pattern)
    run = linear_regex._Run(regex._step)
    # Of any cost, also if the texts are as long as transactional ids may be.
    monkeypatch.setattr(linear_regex, "VISITS_MAX", 1 << 60)
    before, turns = 0, 0
    for text in ("abcd" * 5_000, "dcba" * 5_000):
        for _ in regex._walk(text, run):
            # A turn ends with the step that uses it up; a step visits each state, then those that follow.
            assert run.built - before <= VISITS_PER_TURN + 5 * STATES_MAX
            before = run.built
            turns += 1
    assert turns


async def test_a_pattern_that_takes_too_long_for_the_texts_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(linear_regex, "VISITS_MAX", 100_000)
    regex = LinearRegex("(.*a.{12}|.*b.{13}|.*c.{14})*z")
    with pytest.raises(InvalidPattern, match="too long"):
        await regex.matching("".join(letters) * 20 for letters in itertools.product("abc", repeat=7))
    # It says so of those texts, not of itself.
    assert await regex.matching(["z", "az", ""]) == ["z"]


async def test_a_short_pattern_matches_many_long_texts() -> None:
    texts = [f"orders.{number}." + "x" * 200 for number in range(2_000)]
    assert await LinearRegex(r"^orders\..*x$").matching(texts) == texts


def test_a_match_that_takes_more_than_a_turn_is_not_decided_at_once() -> None:
    assert LinearRegex("(a?){400}").matches_at_once("a" * 200) is None
    assert LinearRegex("a*").matches_at_once("a" * 200) is True
    assert LinearRegex("a*").matches_at_once("b") is False
