"""Errors of a mirror: what a person must change, and what may pass."""

from __future__ import annotations

from ..wire.error_codes import ErrorCode


class MirrorError(Exception):
    """The definition of the mirror cannot be used; a person must change it."""


class SourceError(Exception):
    """A request to the source, or to another cluster as the target, failed; a later one may succeed."""


class SourceUnavailable(SourceError):
    """There is no connection, or it broke before the response."""


class SourceRefused(SourceError):
    """The source refused TLS or the login, or its certificate is not trusted."""


class SourceMalformed(SourceError):
    """The source sent bytes that are not of Kafka's protocol."""


class SourceLacks(SourceError):
    """The source has no version of an API that the mirror knows."""


class SourceReplied(SourceError):
    """The source, or the target, answered with an error of Kafka's protocol; ``number`` is its code."""

    def __init__(self, what: str, number: int, message: str | None = None) -> None:
        super().__init__(f"{what}: {error_name(number)}" + (f" ({message[:200]})" if message else ""))
        self.number = number


def error_name(number: int) -> str:
    """Return the name of an error of Kafka's protocol."""
    try:
        return ErrorCode(number).name
    except ValueError:
        return f"error {number}"
