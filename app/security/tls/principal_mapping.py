"""Map the subject of a client's certificate to a principal.

The rules are Kafka's ``ssl.principal.mapping.rules``.

Rules are separated by commas, and the first that matches decides::

    RULE:^CN=([^,]+),OU=Service,.*$/$1/L,RULE:^CN=([^,]+).*$/$1/,DEFAULT

``DEFAULT`` takes the whole name. ``RULE:PATTERN/REPLACEMENT/`` applies if the pattern
matches the whole name; ``$1`` stands for its first group. ``L`` or ``U`` after the last
slash puts the result into lower or upper case. ``\\/`` is a slash. Patterns have the syntax
of Python's ``re``, which is Java's but for rarely used constructs.

Patterns see a comma or a plus sign within a value as ``\\2C`` and ``\\2B``. Otherwise
``[^,]+,OU=Service`` would match a common name that holds ``,OU=Service``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

ANONYMOUS = "User:ANONYMOUS"
# The first means every principal in access rules, the second clients without a login.
_RESERVED = ("*", "ANONYMOUS")
# Names of certificates are short; a rule may take time that grows fast with the length.
NAME_CHARACTERS_MAX = 1024

_DEFAULT, _RULE = "DEFAULT", "RULE:"
_ESCAPE, _HIDDEN = re.compile(r"\\(.)", re.DOTALL), re.compile(r"\\(2C|2B|.)", re.DOTALL)
_HEXADECIMAL = {",": "2C", "+": "2B"}
_CHARACTER = {hexadecimal: character for character, hexadecimal in _HEXADECIMAL.items()}
_BACK_REFERENCE = re.compile(r"\\(.)|\$(\d+)")


class InvalidMappingRules(ValueError):
    """The rules cannot be read."""


class NoPrincipal(ValueError):
    """No rule gives this name a principal."""


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: re.Pattern[str]
    # Literal text and numbers of groups, in turn.
    replacement: tuple[str | int, ...]
    case: Literal["", "L", "U"]

    def apply(self, name: str) -> str | None:
        match = self.pattern.fullmatch(name)
        if match is None:
            return None
        text = "".join(
            part if isinstance(part, str) else _shown(match.group(part) or "") for part in self.replacement
        )
        return text.lower() if self.case == "L" else text.upper() if self.case == "U" else text


def _shown(text: str) -> str:
    """Return a part of a name as RFC 4514 and Apache Kafka write it."""
    return _HIDDEN.sub(lambda match: "\\" + _CHARACTER.get(match[1], match[1]), text)


class PrincipalMapping:
    """The rules of one listener."""

    def __init__(self, rules: str = _DEFAULT) -> None:
        """Parse ``rules``. Raises InvalidMappingRules."""
        self._rules = _parse(rules)

    def principal(self, name: str) -> str:
        """Return ``User:NAME`` for a distinguished name.

        Raises:
            NoPrincipal: no rule matches, or the result is empty or a reserved name.
        """
        if len(name) > NAME_CHARACTERS_MAX:
            raise NoPrincipal(f"the name of the certificate has {len(name)} characters")
        hidden = _ESCAPE.sub(lambda match: "\\" + _HEXADECIMAL.get(match[1], match[1]), name)
        for rule in self._rules:
            mapped = name if rule is None else rule.apply(hidden)
            if mapped in _RESERVED:
                raise NoPrincipal(f"tls_principal_mapping_rules give {name!r} the reserved name {mapped!r}")
            if mapped:
                return f"User:{mapped}"
            if mapped is not None:
                break
        raise NoPrincipal(f"no rule of tls_principal_mapping_rules gives {name!r} a principal")


def _parse(text: str) -> list[_Rule | None]:
    """Return the rules in order; None stands for ``DEFAULT``."""
    rules: list[_Rule | None] = []
    position = 0
    while True:
        position += len(text[position:]) - len(text[position:].lstrip())
        if text.startswith(_DEFAULT, position):
            rules.append(None)
            position += len(_DEFAULT)
        elif text.startswith(_RULE, position):
            pattern, position = _until_slash(text, position + len(_RULE))
            replacement, position = _until_slash(text, position)
            case: Literal["", "L", "U"] = ""
            if text.startswith("L", position):
                case = "L"
            elif text.startswith("U", position):
                case = "U"
            position += len(case)
            rules.append(_rule(pattern, replacement, case))
        else:
            raise _invalid(text, position, "a rule begins with RULE: or is DEFAULT")
        rest = text[position:].lstrip()
        if not rest:
            return rules
        if not rest.startswith(","):
            raise _invalid(text, position, "a comma separates rules")
        position = len(text) - len(rest) + 1


def _until_slash(text: str, start: int) -> tuple[str, int]:
    """Return the text up to the next unescaped slash, and the position after it."""
    position = start
    while position < len(text):
        if text[position] == "\\":
            position += 2
        elif text[position] == "/":
            return text[start:position], position + 1
        else:
            position += 1
    raise _invalid(text, start, "a rule has the form RULE:PATTERN/REPLACEMENT/")


def _rule(pattern: str, replacement: str, case: Literal["", "L", "U"]) -> _Rule:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise InvalidMappingRules(f"the pattern {pattern!r} is invalid: {error}") from error
    parts: list[str | int] = []
    position = 0
    for match in _BACK_REFERENCE.finditer(replacement):
        parts.append(replacement[position : match.start()])
        position = match.end()
        if match[1] is not None:
            parts.append(match[1])
            continue
        number = int(match[2])
        if number > compiled.groups:
            raise InvalidMappingRules(
                f"{replacement!r} names group {number}; the pattern has {compiled.groups}"
            )
        parts.append(number)
    return _Rule(compiled, (*parts, replacement[position:]), case)


def _invalid(text: str, position: int, why: str) -> InvalidMappingRules:
    return InvalidMappingRules(f"tls_principal_mapping_rules cannot be read at {text[position:]!r}: {why}")
