"""An HTTP proxy before an S3 server that fails requests in the ways in which stores fail."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from enum import Enum
from random import Random

from .links import Address, Link, LinkLoop

_HEAD_BYTES_MAX = 1 << 16
_ERROR = "HTTP/1.1 {status}\r\ncontent-type: application/xml\r\ncontent-length: {length}\r\n\r\n{body}"
_BODY = '<?xml version="1.0"?><Error><Code>{code}</Code><Message>a fault of the test</Message></Error>'


class StoreFault(Enum):
    """What happens to a request."""

    # Refused with the status.
    ERROR_500 = "500 Internal Server Error"
    ERROR_503 = "503 Service Unavailable"
    ERROR_429 = "429 Too Many Requests"
    EXPIRED_TOKEN = "400 Bad Request"
    # Served after a delay.
    SLOW = "slow"
    # Served, but the client's connection ends before the answer.
    LOST_ANSWER = "lost answer"
    # The client's connection ends at once, and the store gets the request later.
    LATE = "late"
    # Never answered; the client has to give up.
    NO_ANSWER = "no answer"
    # Half of the answer, then the end.
    CUT_ANSWER = "cut answer"


# The codes of S3 in refusals.
_CODES = {
    StoreFault.ERROR_500: "InternalError",
    StoreFault.ERROR_503: "SlowDown",
    StoreFault.ERROR_429: "TooManyRequests",
    StoreFault.EXPIRED_TOKEN: "ExpiredToken",
}


@dataclass(frozen=True, slots=True)
class StoreMood:
    """``faults`` meet a request with ``probability``. Delays are up to ``delay_s``."""

    faults: tuple[StoreFault, ...] = ()
    probability: float = 0.0
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    data: bytes


class StoreProxy(Link):
    """A link to an S3 server.

    ``outage`` says how it fails requests, and if that is nothing, ``mood`` does. ``failed`` counts the requests that
    met a fault, when they did, and ``requests`` all of them by their method. ``lost_conditions`` counts conditional PUTs
    that came too late.
    """

    def __init__(self, loop: LinkLoop, name: str, target: Address, random: Random) -> None:
        self._random = random
        self.mood = StoreMood()
        self.outage = StoreMood()
        self.failed: Counter[StoreFault] = Counter()
        self.requests: Counter[str] = Counter()
        self.lost_conditions = 0
        self._late: set[asyncio.Task[None]] = set()
        super().__init__(loop, name, target)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await self.connect()
        try:
            while (request := await _read_request(reader)) is not None:
                self.requests[request.method] += 1
                await self.passable()
                mood = self.outage if self.outage.faults else self.mood
                fault = self._fault(request, mood)
                if fault in _CODES:
                    writer.write(_error(fault))
                    await writer.drain()
                    self.failed[fault] += 1
                    continue
                if fault is StoreFault.SLOW:
                    self.failed[fault] += 1
                    await asyncio.sleep(self._random.random() * mood.delay_s)
                elif fault is StoreFault.LATE:
                    self.failed[fault] += 1
                    task = asyncio.create_task(self._send_late(request, self._random.random() * mood.delay_s))
                    self._late.add(task)
                    task.add_done_callback(self._late.discard)
                    return
                elif fault is StoreFault.NO_ANSWER:
                    self.failed[fault] += 1
                    # Until the client gives up.
                    await reader.read(1)
                    return
                server_writer.write(request.data)
                await server_writer.drain()
                answer = await _read_answer(server_reader, request.method)
                self.lost_conditions += answer.startswith(b"HTTP/1.1 412")
                await self.passable()
                if fault is StoreFault.LOST_ANSWER:
                    self.failed[fault] += 1
                    return
                if fault is StoreFault.CUT_ANSWER:
                    self.failed[fault] += 1
                    writer.write(answer[: len(answer) // 2])
                    await writer.drain()
                    writer.write_eof()
                    return
                writer.write(answer)
                await writer.drain()
        finally:
            self.forget(server_writer)

    def _fault(self, request: _Request, mood: StoreMood) -> StoreFault | None:
        if not mood.faults or self._random.random() >= mood.probability:
            return None
        fault = self._random.choice(mood.faults)
        if fault is StoreFault.LATE and request.method == "GET":
            return StoreFault.LOST_ANSWER
        return fault

    async def _send_late(self, request: _Request, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        try:
            reader, writer = await self.connect()
        except OSError:
            return
        try:
            writer.write(request.data)
            await writer.drain()
            await _read_answer(reader, request.method)
        except (OSError, asyncio.IncompleteReadError):
            return
        finally:
            self.forget(writer)


def _error(fault: StoreFault) -> bytes:
    body = _BODY.format(code=_CODES[fault])
    return _ERROR.format(status=fault.value, length=len(body), body=body).encode()


async def _read_head(reader: asyncio.StreamReader) -> tuple[bytes, dict[str, str]]:
    head = await reader.readuntil(b"\r\n\r\n")
    assert len(head) <= _HEAD_BYTES_MAX
    lines = head.decode("latin-1").split("\r\n")[1:]
    headers = (line.partition(":") for line in lines if line)
    return head, {name.strip().lower(): value.strip() for name, _, value in headers}


async def _read_request(reader: asyncio.StreamReader) -> _Request | None:
    try:
        head, headers = await _read_head(reader)
    except asyncio.IncompleteReadError:
        return None
    assert "transfer-encoding" not in headers, "the client of the store sends bodies of known length"
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return _Request(head.split(b" ", 1)[0].decode(), head + body)


async def _read_answer(reader: asyncio.StreamReader, method: str) -> bytes:
    head, headers = await _read_head(reader)
    status = int(head.split(b" ", 2)[1])
    if method == "HEAD" or status in (204, 304):
        return head
    if headers.get("transfer-encoding", "").lower() == "chunked":
        parts = [head]
        while True:
            line = await reader.readuntil(b"\r\n")
            chunk = await reader.readexactly(int(line.split(b";")[0], 16) + 2)
            parts += [line, chunk]
            if len(chunk) == 2:
                return b"".join(parts)
    return head + await reader.readexactly(int(headers.get("content-length", "0")))
