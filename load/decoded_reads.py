"""Requests to the HTTP port of a broker on this machine, one on each connection, and all kinds of reads that decode records."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass

MIB = 1024 * 1024
_TIMEOUT_S = 300.0


def http_request(method: str, path: str, body: object = None, **headers: str) -> bytes:
    """Return a request that closes its connection; ``body`` is bytes, or becomes JSON."""
    content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    head = {
        "content_type": "application/json",
        **headers,
        "content_length": len(content),
        "connection": "close",
    }
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in head.items())
    return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n".encode() + content


def ask(port: int, method: str, path: str, body: object = None) -> bytes:
    """Return the whole answer, head and body."""
    answer = bytearray()
    exchange(port, http_request(method, path, body), answer)
    return bytes(answer)


def exchange(
    port: int, request: bytes, answer: bytearray | None = None, *, until: bytes | None = None
) -> None:
    """Send a request, and read until the answer ends, or shows ``until``; raises ``RuntimeError`` if it is refused."""
    with socket.create_connection(("127.0.0.1", port), timeout=_TIMEOUT_S) as connection:
        connection.sendall(request)
        buffer, end, is_first = bytearray(MIB), b"", True
        while size := connection.recv_into(buffer):
            if is_first and not buffer.startswith(b"HTTP/1.1 2"):
                raise RuntimeError(f"{request[:200]!r}: {bytes(buffer[: min(size, 500)])!r}")
            is_first = False
            if answer is not None:
                answer += buffer[:size]
            if until is not None:
                end = end[-len(until) :] + buffer[max(0, size - 500) : size]
                if until in end:
                    break


@dataclass(frozen=True, slots=True)
class Way:
    """One kind of decoded read: a request, for the client of a number."""

    what: str
    path: str
    accept: str = "application/json"
    body: dict[str, object] | None = None

    def request(self, topic: str, number: int) -> bytes:
        path = self.path.format(topic=topic, number=number)
        if self.body is None:
            return http_request("GET", path, accept=self.accept)
        return http_request("POST", path, {"topics": [topic], **self.body}, accept=self.accept)


_RECORDS = "/v1/topics/{topic}/partitions/0/records"
_NDJSON, _SSE = "application/x-ndjson", "text/event-stream"
WAYS = (
    Way("a page as JSON", f"{_RECORDS}?limit=2"),
    Way("a page as NDJSON", f"{_RECORDS}?limit=2", _NDJSON),
    Way("a page as Arrow", f"{_RECORDS}?limit=2", "application/vnd.apache.arrow.stream"),
    Way("a single record", _RECORDS + "/1"),
    Way("the value of a record", _RECORDS + "/1?part=value", "*/*"),
    Way("a search", "/v1/topics/{topic}/search?limit=2"),
    Way("an export as NDJSON", "/v1/topics/{topic}/search?format=ndjson&limit=2"),
    Way("an export as CSV", "/v1/topics/{topic}/search?format=csv&limit=2"),
    Way("a lookup by key", "/v1/topics/{topic}/keys/k"),
    Way("a table as NDJSON", "/v1/topics/{topic}/table", _NDJSON),
    Way("a table as events", "/v1/topics/{topic}/table", _SSE),
    Way("a live tail as events", f"{_RECORDS}?from=earliest", _SSE),
    Way("a live tail as NDJSON", "/v1/topics/{topic}/records?from=earliest", _NDJSON),
    Way("a poll with a lease", "/v1/groups/lease-{number}/poll", body={"max_records": 2}),
    Way(
        "a poll of a share group",
        "/v1/groups/share-{number}/share/poll",
        body={"max_records": 2, "from": "earliest"},
    ),
)
