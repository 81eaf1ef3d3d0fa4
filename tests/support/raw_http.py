"""HTTP/1 over a bare socket: bytes as they are given, in segments of their own, and the responses to them."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from tests.support.waiting import eventually

TIMEOUT_S = 60.0
_BODYLESS = (204, 304)


@dataclass(frozen=True, slots=True)
class RawResponse:
    """One response; ``fields`` by name in lower case, ``is_whole`` unless the connection ended within its body."""

    status: int
    version: str
    fields: dict[str, str]
    body: bytes
    is_whole: bool = True
    lines: list[str] = field(default_factory=list[str])

    @property
    def request_id(self) -> str:
        return self.fields.get("x-request-id", "")


class RawConnection:
    """A connection to an HTTP listener."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        self._socket = socket.create_connection((parts.hostname, parts.port), timeout=TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._ports = self._socket.getpeername()[1], self._socket.getsockname()[1]
        self._rest = b""
        self.is_ended = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def send(self, *segments: bytes) -> None:
        """Send each segment after the broker has read the one before it. A broker that closes ends it early."""
        for number, segment in enumerate(segments):
            if number:
                eventually(self._is_read, "the broker has read what was sent")
            try:
                self._socket.sendall(segment)
            except OSError:
                return

    def end_sending(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)

    def _is_read(self) -> bool:
        """Return whether nothing waits in the broker's socket, or the broker has closed it."""
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            columns = line.split()
            local, remote = (int(address.rpartition(":")[2], 16) for address in columns[1:3])
            if (local, remote) == self._ports:
                return int(columns[4].partition(":")[2], 16) == 0
        return True

    def responses(self, until: str) -> list[RawResponse]:
        """Return the responses up to the one with ``until`` as its request id, or until the broker closes."""
        found: list[RawResponse] = []
        while (response := self.response()) is not None:
            found.append(response)
            if response.request_id == until or not response.is_whole:
                break
        return found

    def response(self, *, is_head: bool = False) -> RawResponse | None:
        """Return the next response; None if the broker has closed the connection."""
        head = self._take_until(b"\r\n\r\n")
        if head is None:
            return None
        first, *lines = head.decode("latin-1").split("\r\n")
        version, status_text, _ = first.split(" ", 2)
        status = int(status_text)
        fields = {
            name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)
        }
        if status < 200 or status in _BODYLESS or is_head:
            return RawResponse(status, version, fields, b"", lines=lines)
        if fields.get("transfer-encoding") == "chunked":
            body, is_whole = self._chunked()
        elif "content-length" in fields:
            size = int(fields["content-length"])
            taken = self._take(size)
            body, is_whole = taken, len(taken) == size
        else:
            body, is_whole = self._take_all(), True
        return RawResponse(status, version, fields, body, is_whole, lines)

    def has_ended(self) -> bool:
        """Return whether the broker closes the connection, and sends nothing before."""
        return not self._rest and not self._receive()

    def _chunked(self) -> tuple[bytes, bool]:
        body = b""
        while (line := self._take_until(b"\r\n")) is not None:
            size = int(line.strip(), 16)
            chunk = self._take(size + 2)
            if len(chunk) < size + 2:
                break
            if not size:
                return body, True
            body += chunk[:-2]
        return body, False

    def _receive(self) -> bool:
        try:
            piece = self._socket.recv(65536)
        except ConnectionError:
            piece = b""
        self._rest += piece
        self.is_ended = self.is_ended or not piece
        return bool(piece)

    def _take_until(self, end: bytes) -> bytes | None:
        while end not in self._rest:
            if not self._receive():
                return None
        taken, _, self._rest = self._rest.partition(end)
        return taken + end

    def _take(self, size: int) -> bytes:
        while len(self._rest) < size and self._receive():
            pass
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken

    def _take_all(self) -> bytes:
        while self._receive():
            pass
        taken, self._rest = self._rest, b""
        return taken
