"""Expressions of clients match as Python's do, in linear time, and are bounded."""

from __future__ import annotations

import itertools
import re

import pytest

from app.linear_regex import PATTERN_CHARACTERS_MAX, InvalidPattern, LinearRegex

TEXTS = [
    "",
    *map("".join, itertools.chain.from_iterable(itertools.product("ab1-", repeat=n) for n in range(1, 5))),
]
PATTERNS = [
    "", "a", "ab", "a|b", "a*", "a+", "a?b", "(a|b)*", "(?:ab)+", "[ab]+", "[^a]+", "[a-b1]*", ".*", "a.b",
    r"\d+", r"\D*", r"\w+", r"\W", r"a\-b", "[-a]+", "[a-]+", "[]a]", "a{2}", "a{1,}b", "(ab){1,2}", "a{0}", "^a$", "^a|b$",
    "a^b", "a$b", "(^a)b*", "a*?b", "(a*)*", "(a|)+b", "(|a)*", "((a?)(b?))*1", "a{,2}", "x|", "(^|a)b", r"[\d-]+", "$^",
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
        "a{1001}", "a{2,1}", "(a{1000}){1000}", "(" * 60 + ")" * 60, "a" * (PATTERN_CHARACTERS_MAX + 1),
    ],
)  # fmt: skip
def test_an_invalid_or_oversized_pattern_is_refused_with_a_reason(pattern: str) -> None:
    with pytest.raises(InvalidPattern, match=r"regular expression"):
        LinearRegex(pattern)
