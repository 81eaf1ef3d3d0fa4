"""Checks large values of JSON Schema in a process of its own, because validation holds the interpreter.

It is started with the first such value, and again after one that takes too long, which ends it.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Mapping
from functools import lru_cache
from struct import Struct
from typing import IO, TYPE_CHECKING, Any

import msgspec
from stele.schemas.definitions import InvalidValue

if TYPE_CHECKING:
    from stele.schemas.json_schema import JsonSchema

# Of one value, with the start of the process. A thread of the produce queue waits meanwhile.
_SECONDS_MAX = 10.0
# Of the schemas that the process keeps.
_KEPT = 32
_LENGTH = Struct(">I")


class JsonProcess:
    """The process; its methods may be called in any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """None while there is no process."""
        return None if self._process is None else self._process.pid

    def check(self, schema: JsonSchema, data: bytes) -> None:
        """Raises ``InvalidValue`` as the schema does, and if it takes too long."""
        with self._lock:
            problem = self._ask((*schema.source, data))
        if problem is not None:
            raise InvalidValue(*problem)

    def close(self) -> None:
        """End the process; a value that it is checking is refused."""
        process = self._process
        if process is not None:
            process.kill()
        with self._lock:
            self._end()

    def _ask(self, request: tuple[str, Mapping[str, str], bytes]) -> tuple[str, str] | None:
        if self._process is None:
            self._process = subprocess.Popen(  # noqa: S603 (our own interpreter and module)
                [sys.executable, "-m", __name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                # A signal to the group of the broker is for the broker.
                start_new_session=True,
            )
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        alarm = threading.Timer(_SECONDS_MAX, process.kill)
        alarm.start()
        try:
            _write(process.stdin, request)
            return msgspec.convert(_read(process.stdout), tuple[str, str] | None)
        except (OSError, EOFError):
            self._end()
            return "", f"it is too large for its schema: to check it takes more than {_SECONDS_MAX:g} s"
        finally:
            alarm.cancel()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()


def _write(stream: IO[bytes], message: Any) -> None:
    data = msgspec.msgpack.encode(message)
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def _read(stream: IO[bytes]) -> Any:
    """Return the next message. Raises ``EOFError``."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    (length,) = _LENGTH.unpack(head)
    data = stream.read(length)
    if len(data) < length:
        raise EOFError
    return msgspec.msgpack.decode(data)


@lru_cache(_KEPT)
def _schema(text: str, references: tuple[tuple[str, str], ...]) -> JsonSchema:
    from stele.schemas import json_schema

    return json_schema.parse(text, dict(references))


def main() -> None:
    """Answer requests until the input ends: the problem of a value, or none."""
    while True:
        try:
            text, references, data = _read(sys.stdin.buffer)
        except EOFError:
            return
        problem = None
        try:
            _schema(text, tuple(references.items())).check(data)
        except InvalidValue as error:
            problem = error.pointer, error.reason
        _write(sys.stdout.buffer, problem)


if __name__ == "__main__":
    main()
