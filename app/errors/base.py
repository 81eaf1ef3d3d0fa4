"""The roots of the tree, and the errors that belong to no one subject."""

from __future__ import annotations


class SteleError(Exception):
    """The root of the tree; catch it only at the edge of a task or a connection."""


class RequestError(SteleError):
    """The client must change its request."""


class InvalidRequest(RequestError):
    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class StatementStopped(RequestError):
    def __init__(self, reason: str, *, setting: str, value: int) -> None:
        super().__init__(f"{reason} ({setting} is {value})")
        self.setting = setting


class RequestTimedOut(SteleError):
    def __init__(self, what: str, *, timeout_ms: int) -> None:
        super().__init__(
            f"{what} was not confirmed within {timeout_ms} ms and may still complete; check before you repeat it"
        )
        self.what = what
        self.timeout_ms = timeout_ms


class ReadMemoryFull(SteleError):
    """``what`` would unpack to ``size`` bytes, for which there is no room now."""

    def __init__(self, what: str, *, size: int, bytes_max: int) -> None:
        super().__init__(
            f"{what} may unpack to {size} bytes, and other reads hold the {bytes_max} bytes that decoded_bytes_max "
            "allows; read it again later"
        )
        self.what = what
        self.size = size
        self.bytes_max = bytes_max


class BrokerClosing(SteleError):
    def __init__(self) -> None:
        super().__init__("the broker is shutting down; connect again after it has restarted")


def short(text: str) -> str:
    """Return ``text`` for a message; the client chose it, so a long one is cut."""
    return text if len(text) <= 80 else f"{text[:60]}… ({len(text)} characters)"


def forget_frames(error: BaseException) -> None:
    """Drop the tracebacks of an error that a client is answered with, and of the errors that it came from.

    Their frames hold what the request held, such as an unpacked batch of 64 MiB, and often the error itself. Such a
    cycle stays until a collection of garbage, and those count objects, not bytes.
    """
    found: list[BaseException | None] = [error]
    while found:
        one = found.pop()
        if one is not None and one.__traceback__ is not None:
            one.__traceback__ = None
            found += (one.__cause__, one.__context__)
