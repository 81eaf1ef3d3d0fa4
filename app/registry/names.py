"""Names of subjects and of the contexts that they are in.

::

    orders-value            subject orders-value of the default context, "."
    :.:orders-value         the same
    :.eu:orders-value       subject orders-value of the context .eu
    :.eu:                   the context .eu itself, for its configuration and mode
    :.__GLOBAL:             all contexts, for the configuration and mode that they fall back to
    :*:orders               a prefix: what begins with orders in any context
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import NamedTuple

from .errors import InvalidSubject

DEFAULT_CONTEXT = "."
GLOBAL_CONTEXT = ".__GLOBAL"
_RESERVED = frozenset(("__GLOBAL", "__EMPTY"))
_ALL_CONTEXTS = ":*:"
_DEFAULT_PREFIX = ":.:"


class Name(NamedTuple):
    """A subject within its context; without a subject, the context itself."""

    context: str
    subject: str

    @classmethod
    def parse(cls, text: str) -> Name:
        """Split a name as clients write it."""
        # Also if it is there twice, so that no two names are of one subject.
        while text.startswith(_DEFAULT_PREFIX):
            text = text.removeprefix(_DEFAULT_PREFIX)
        if not text.startswith(":."):
            return cls(DEFAULT_CONTEXT, text)
        context, _, subject = text[1:].partition(":")
        return cls(context, subject)

    @property
    def qualified(self) -> str:
        """The name by which the registry knows it; "" is the default context itself."""
        return self.subject if self.context == DEFAULT_CONTEXT else f":{self.context}:{self.subject}"

    @property
    def scopes(self) -> tuple[str, ...]:
        """The names of the configurations and modes that count for it, its own first."""
        context = Name(self.context, "").qualified
        ours = (self.qualified, context) if self.subject else (context,)
        return ours if self.context == GLOBAL_CONTEXT else (*ours, Name(GLOBAL_CONTEXT, "").qualified)

    def includes(self, other: Name) -> bool:
        """Return whether ``other`` is this subject, or in this context, or in any if this is the global one."""
        if self.subject:
            return other == self
        return self.context in (other.context, GLOBAL_CONTEXT)

    def near(self, text: str) -> Name:
        """Return the subject that ``text`` means in a reference of this one: by default in the same context."""
        return Name.parse(text) if text.startswith(":.") else Name(self.context, text)


def new_subject(text: str) -> Name:
    """Return the name of a subject to register. Raises ``InvalidSubject``."""
    name = Name.parse(text)
    # What begins like a context within the default one would have the name of a subject of that context.
    is_ambiguous = name.subject.startswith(":.")
    if not name.subject or is_ambiguous or name.context == GLOBAL_CONTEXT or name.subject in _RESERVED:
        raise InvalidSubject(text)
    return _checked(text, name)


def scope(text: str | None) -> Name:
    """Return what has a configuration or a mode: None is the default context. Raises ``InvalidSubject``."""
    return _checked(text or "", Name.parse(text or ""))


def _checked(text: str, name: Name) -> Name:
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in text):
        raise InvalidSubject(text)
    return name


def matcher(prefix: str) -> Callable[[Name], bool]:
    """Return whether a subject begins with ``prefix``, which may begin with a context."""
    if prefix.startswith(_ALL_CONTEXTS):
        begin = prefix.removeprefix(_ALL_CONTEXTS)
        return lambda name: name.subject.startswith(begin)
    wanted = Name.parse(prefix)
    return lambda name: name.context == wanted.context and name.subject.startswith(wanted.subject)
