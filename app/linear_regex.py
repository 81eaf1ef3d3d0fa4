"""Regular expressions of clients, matched in time linear in the text.

Clients filter transactional ids by expressions in RE2's syntax (KIP-1152), which Python's
``re`` would match in exponential time. Supported: literals, ``.``, classes, ``\\d \\w \\s`` and their
opposites, groups, ``|``, ``* + ? {m,n}``, ``^`` and ``$``. An expression matches whole texts only.

The expression becomes a nondeterministic automaton of at most ``STATES_MAX`` states. Its
deterministic one is built as texts need it, and forgotten at ``SETS_MAX`` sets of states.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

PATTERN_CHARACTERS_MAX = 1000
STATES_MAX = 1000
SETS_MAX = 200
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
                after = program.add(None, end, node(program, after))
        for _ in range(least):
            after = node(program, after)
        return after

    return build


# ── the syntax ──


def _is_word(character: str) -> bool:
    return character.isascii() and (character.isalnum() or character == "_")


def _is_digit(character: str) -> bool:
    return "0" <= character <= "9"


def _is_space(character: str) -> bool:
    return character in "\t\n\f\r "


def _negated(matches: _Matches) -> _Matches:
    return lambda character: not matches(character)


_CLASSES: dict[str, _Matches] = {
    "d": _is_digit,
    "D": _negated(_is_digit),
    "w": _is_word,
    "W": _negated(_is_word),
    "s": _is_space,
    "S": _negated(_is_space),
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
            return _CLASSES[character]
        return self._escaped(character).__eq__

    def _escaped(self, character: str) -> str:
        if character in _CONTROLS:
            return _CONTROLS[character]
        if character.isalnum():
            raise InvalidPattern(f"the regular expression has an escape \\{character} that is not supported")
        return character

    def _class(self) -> _Matches:
        is_negated = self._skip("^")
        members: list[_Matches] = []
        is_first = True
        while is_first or self._peek() != "]":
            is_first = False
            members.append(self._member())
        self.position += 1

        def matches(character: str) -> bool:
            return any(member(character) for member in members)

        return _negated(matches) if is_negated else matches

    def _member(self) -> _Matches:
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
            return first.__eq__
        self.position += 1
        last = self._take()
        if last == "\\":
            last = self._escaped(self._take())
        if last < first:
            raise InvalidPattern(f"the regular expression has a range {first}-{last} with its ends exchanged")
        return lambda character: first <= character <= last


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
        self._first = self._closure({first}, is_start=True)
        self._steps: dict[tuple[_Set, str], _Set] = {}

    def matches(self, text: str) -> bool:
        """Return whether the expression matches the whole of ``text``."""
        current = self._first
        for character in text:
            step = current, character
            reached = self._steps.get(step)
            if reached is None:
                reached = self._step(current, character)
                if len(self._steps) >= SETS_MAX:
                    self._steps.clear()
                self._steps[step] = reached
            current = reached
            if not current:
                return False
        return self._end in self._closure(set(current), is_start=not text, is_end=True)

    def _step(self, current: _Set, character: str) -> _Set:
        reached: set[int] = set()
        for number in current:
            state = self._states[number]
            if state.matches is not None and state.matches(character):
                reached.update(state.next)
        return self._closure(reached)

    def _closure(self, numbers: set[int], *, is_start: bool = False, is_end: bool = False) -> _Set:
        """Return the states that are reached from ``numbers`` without reading anything."""
        reached = set(numbers)
        left = list(numbers)
        while left:
            state = self._states[left.pop()]
            if state.matches is not None:
                continue
            if (state.anchor == "^" and not is_start) or (state.anchor == "$" and not is_end):
                continue
            for number in state.next:
                if number not in reached:
                    reached.add(number)
                    left.append(number)
        return frozenset(reached)
