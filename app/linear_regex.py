"""Regular expressions of clients, matched in time linear in the text.

Clients filter transactional ids by expressions in RE2's syntax (KIP-1152), which Python's
``re`` would match in exponential time. Supported: literals, ``.``, classes, ``\\d \\w \\s`` and their
opposites, groups, ``|``, ``* + ? {m,n}``, ``^`` and ``$``. An expression matches whole texts only.

The expression becomes a nondeterministic automaton of at most ``STATES_MAX`` states. Its
deterministic one is built as texts need it, and forgotten at ``STEPS_MAX`` steps and with the last text.

A client chooses what a character costs, so the work is counted in visits of states. A task pauses after
``VISITS_PER_TURN``, and an expression that needs more than ``VISITS_MAX`` for the texts of a request is refused.
Callers leave out the texts that the client may not see before they match: the time would tell of them.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from .work_budget import pause

PATTERN_CHARACTERS_MAX = 1000
STATES_MAX = 1000
STEPS_MAX = 2000
# Each visit takes some 0.2 µs, so a turn takes less than a millisecond, and a request some two seconds.
VISITS_PER_TURN = 3000
VISITS_MAX = 10_000_000
_NESTING_MAX = 50
_REPEATS_MAX = 1000

_Matches = Callable[[str], bool]
_Node = Callable[["_Program", int], int]


class InvalidPattern(ValueError):
    """The expression is not valid, not supported, or too large."""


# ── the automaton ──


@dataclass(slots=True)
class _State:
    """Reads one character that ``matches``, and goes to ``next``.

    Without it goes to any of ``next`` unread.
    """

    matches: _Matches | None
    next: list[int]
    # "^" is passed only at the beginning of the text, "$" only at its end.
    anchor: str = ""


@dataclass(slots=True)
class _Program:
    states: list[_State] = field(default_factory=list[_State])
    repetitions: int = 0

    def repeat(self) -> None:
        """Count a repetition: that of an empty group adds no state."""
        self.repetitions += 1
        if self.repetitions > STATES_MAX:
            raise InvalidPattern("the regular expression is too large; use fewer or smaller repetitions")

    def add(self, matches: _Matches | None, *following: int, anchor: str = "") -> int:
        if len(self.states) >= STATES_MAX:
            raise InvalidPattern("the regular expression is too large; use fewer or smaller repetitions")
        self.states.append(_State(matches, list(following), anchor))
        return len(self.states) - 1


# Each node builds its states in front of a state and returns the first of them.


def _one(matches: _Matches) -> _Node:
    return lambda program, after: program.add(matches, after)


def _anchor(name: str) -> _Node:
    return lambda program, after: program.add(None, after, anchor=name)


def _sequence(nodes: list[_Node]) -> _Node:
    def build(program: _Program, after: int) -> int:
        for node in reversed(nodes):
            after = node(program, after)
        return after

    return build


def _alternatives(nodes: list[_Node]) -> _Node:
    return lambda program, after: program.add(None, *[node(program, after) for node in nodes])


def _repeated(node: _Node, least: int, most: int | None) -> _Node:
    def build(program: _Program, after: int) -> int:
        if most is None:
            loop = program.add(None, after)
            program.states[loop].next.append(node(program, loop))
            after = loop
        else:
            end = after
            for _ in range(most - least):
                program.repeat()
                after = program.add(None, end, node(program, after))
        for _ in range(least):
            program.repeat()
            after = node(program, after)
        return after

    return build


# ── the syntax ──


# First and last character of each range.
_Ranges = list[tuple[str, str]]


def _one_of(ranges: _Ranges) -> _Matches:
    """Match characters of any of ``ranges``, in logarithmic time."""
    joined = _joined(ranges)
    firsts = [first for first, _ in joined]

    def matches(character: str) -> bool:
        index = bisect_right(firsts, character) - 1
        return index >= 0 and character <= joined[index][1]

    return matches


def _joined(ranges: _Ranges) -> _Ranges:
    """Return ``ranges`` in order, without overlaps."""
    joined: _Ranges = []
    for first, last in sorted(ranges):
        if joined and first <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], last)
        else:
            joined.append((first, last))
    return joined


def _negated(ranges: _Ranges) -> _Ranges:
    """Return all characters that are in none of ``ranges``."""
    gaps: _Ranges = []
    begin = 0
    for first, last in _joined(ranges):
        if begin < ord(first):
            gaps.append((chr(begin), chr(ord(first) - 1)))
        begin = ord(last) + 1
    if begin <= sys.maxunicode:
        gaps.append((chr(begin), chr(sys.maxunicode)))
    return gaps


_DIGITS: _Ranges = [("0", "9")]
_WORDS: _Ranges = [("0", "9"), ("A", "Z"), ("_", "_"), ("a", "z")]
_SPACES: _Ranges = [(character, character) for character in "\t\n\f\r "]
_CLASSES: dict[str, _Ranges] = {
    "d": _DIGITS,
    "D": _negated(_DIGITS),
    "w": _WORDS,
    "W": _negated(_WORDS),
    "s": _SPACES,
    "S": _negated(_SPACES),
}

_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}


@dataclass(slots=True)
class _Parser:
    pattern: str
    position: int = 0
    depth: int = 0

    def _peek(self) -> str:
        return self.pattern[self.position : self.position + 1]

    def _take(self) -> str:
        character = self._peek()
        if not character:
            raise InvalidPattern("the regular expression ends too early")
        self.position += 1
        return character

    def _skip(self, text: str) -> bool:
        if not self.pattern.startswith(text, self.position):
            return False
        self.position += len(text)
        return True

    def parse(self) -> _Node:
        node = self._choice()
        if self._peek():
            raise InvalidPattern("the regular expression has a ')' without its '('")
        return node

    def _choice(self) -> _Node:
        self.depth += 1
        if self.depth > _NESTING_MAX:
            raise InvalidPattern(f"the regular expression has more than {_NESTING_MAX} nested groups")
        nodes = [self._branch()]
        while self._skip("|"):
            nodes.append(self._branch())
        self.depth -= 1
        return nodes[0] if len(nodes) == 1 else _alternatives(nodes)

    def _branch(self) -> _Node:
        nodes: list[_Node] = []
        while self._peek() not in ("", "|", ")"):
            nodes.append(self._repetition(self._atom()))
        return _sequence(nodes)

    def _repetition(self, node: _Node) -> _Node:
        if self._skip("*"):
            least, most = 0, None
        elif self._skip("+"):
            least, most = 1, None
        elif self._skip("?"):
            least, most = 0, 1
        else:
            counts = self._counts()
            if counts is None:
                return node
            least, most = counts
        # Lazy repetitions match the same texts.
        self._skip("?")
        if self._peek() in ("*", "+", "?"):
            raise InvalidPattern("the regular expression repeats a repetition; put it into a group")
        return _repeated(node, least, most)

    def _counts(self) -> tuple[int, int | None] | None:
        """Take ``{m}``, ``{m,}`` or ``{m,n}``; any other brace is a literal."""
        end = self.pattern.find("}", self.position)
        if self._peek() != "{" or end < 0:
            return None
        first, comma, second = self.pattern[self.position + 1 : end].partition(",")
        if not (
            first.isascii() and first.isdigit() and (not second or (second.isascii() and second.isdigit()))
        ):
            return None
        self.position = end + 1
        least = int(first)
        most = int(second) if second else (None if comma else least)
        if least > _REPEATS_MAX or (most is not None and not least <= most <= _REPEATS_MAX):
            raise InvalidPattern(f"a repetition of the regular expression is not within 0 to {_REPEATS_MAX}")
        return least, most

    def _atom(self) -> _Node:
        character = self._take()
        if character == "(":
            if self._skip("?") and not self._skip(":"):
                raise InvalidPattern(
                    "the regular expression has a group (?…) that is not supported; use (?:…)"
                )
            node = self._choice()
            if not self._skip(")"):
                raise InvalidPattern("the regular expression has a '(' without its ')'")
            return node
        if character == "[":
            return _one(self._class())
        if character == ".":
            return _one(lambda read: read != "\n")
        if character in "^$":
            return _anchor(character)
        if character in "*+?":
            raise InvalidPattern(f"the regular expression has a {character!r} with nothing to repeat")
        if character == "\\":
            return _one(self._escape())
        return _one(character.__eq__)

    def _escape(self) -> _Matches:
        character = self._take()
        if character in _CLASSES:
            return _one_of(_CLASSES[character])
        return self._escaped(character).__eq__

    def _escaped(self, character: str) -> str:
        if character in _CONTROLS:
            return _CONTROLS[character]
        if character.isalnum():
            raise InvalidPattern(f"the regular expression has an escape \\{character} that is not supported")
        return character

    def _class(self) -> _Matches:
        is_negated = self._skip("^")
        ranges: _Ranges = []
        is_first = True
        while is_first or self._peek() != "]":
            is_first = False
            ranges += self._member()
        self.position += 1
        return _one_of(_negated(ranges) if is_negated else ranges)

    def _member(self) -> _Ranges:
        first = self._take()
        if first == "[" and self._peek() == ":":
            raise InvalidPattern(
                r"the regular expression has a [:class:], which is not supported; use \d, \w or \s"
            )
        if first == "\\":
            escaped = self._take()
            if escaped in _CLASSES:
                return _CLASSES[escaped]
            first = self._escaped(escaped)
        following = self.pattern[self.position : self.position + 2]
        if len(following) < 2 or following[0] != "-" or following[1] == "]":
            return [(first, first)]
        self.position += 1
        last = self._take()
        if last == "\\":
            last = self._escaped(self._take())
        if last < first:
            raise InvalidPattern(f"the regular expression has a range {first}-{last} with its ends exchanged")
        return [(first, last)]


# ── matching ──

_Set = frozenset[int]


class LinearRegex:
    """One expression. Raises ``InvalidPattern`` when it is made."""

    def __init__(self, pattern: str) -> None:
        if len(pattern) > PATTERN_CHARACTERS_MAX:
            raise InvalidPattern(
                f"the regular expression has {len(pattern)} characters; it may have {PATTERN_CHARACTERS_MAX}"
            )
        program = _Program()
        self._end = program.add(None)
        first = _Parser(pattern).parse()(program, self._end)
        self._states = program.states
        self._first, _ = self._closure({first}, is_start=True)

    def matches(self, text: str) -> bool:
        """Return whether the expression matches all of ``text``, however long it takes."""
        run = _Run(self._step)
        for _ in self._walk(text, run):
            pass
        return run.is_match

    def matches_at_once(self, text: str) -> bool | None:
        """Return whether it matches all of ``text``; None if that takes over a turn."""
        run = _Run(self._step)
        return None if any(True for _ in self._walk(text, run)) else run.is_match

    async def matching(self, texts: Iterable[str]) -> list[str]:
        """Return the ``texts`` that match, with pauses for the event loop.

        Raises ``InvalidPattern`` if it takes more than ``VISITS_MAX``.
        """
        found: list[str] = []
        run = _Run(self._step)
        for text in texts:
            for _ in self._walk(text, run):
                await pause()
            if run.is_match:
                found.append(text)
        return found

    def _walk(self, text: str, run: _Run) -> Iterator[None]:
        """Match ``text``; yield after each turn. The result is in ``run``."""
        current = self._first
        run.is_match = False
        for character in text:
            current = run.step(current, character)
            if run.visits >= VISITS_PER_TURN:
                run.visits = 0
                yield
            if not current:
                return
        last, visits = self._closure(set(current), is_start=not text, is_end=True)
        run.visits += visits
        run.is_match = self._end in last

    def _step(self, current: _Set, character: str) -> tuple[_Set, int]:
        """Return the states after ``character``, and the number of visits that took."""
        reached: set[int] = set()
        for number in current:
            state = self._states[number]
            if state.matches is not None and state.matches(character):
                reached.update(state.next)
        closure, visits = self._closure(reached)
        return closure, len(current) + visits

    def _closure(
        self, numbers: set[int], *, is_start: bool = False, is_end: bool = False
    ) -> tuple[_Set, int]:
        """Return the states reached from ``numbers`` without reading, and the visits."""
        reached = set(numbers)
        left = list(numbers)
        visits = 0
        while left:
            state = self._states[left.pop()]
            visits += 1
            if state.matches is not None:
                continue
            if (state.anchor == "^" and not is_start) or (state.anchor == "$" and not is_end):
                continue
            visits += len(state.next)
            for number in state.next:
                if number not in reached:
                    reached.add(number)
                    left.append(number)
        return frozenset(reached), visits


@dataclass(slots=True)
class _Run:
    """The deterministic automaton, built while texts are matched.

    ``visits`` counts those of this turn, ``built`` those of steps that were not known.
    """

    build: Callable[[_Set, str], tuple[_Set, int]]
    steps: dict[tuple[_Set, str], _Set] = field(default_factory=dict[tuple[_Set, str], _Set])
    # One object per set, because comparing equal ones takes as long as they are large.
    sets: dict[_Set, _Set] = field(default_factory=dict[_Set, _Set])
    visits: int = 0
    built: int = 0
    is_match: bool = False

    def step(self, current: _Set, character: str) -> _Set:
        """Return the states after ``character``. Raises ``InvalidPattern``."""
        self.visits += 1
        key = current, character
        reached = self.steps.get(key)
        if reached is None:
            reached, visits = self.build(current, character)
            self.visits += visits
            self.built += visits
            if self.built > VISITS_MAX:
                raise InvalidPattern("the regular expression takes too long to match; use a simpler one")
            if len(self.steps) >= STEPS_MAX:
                self.steps.clear()
                self.sets.clear()
            reached = self.steps[key] = self.sets.setdefault(reached, reached)
        return reached
