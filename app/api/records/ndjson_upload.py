"""Stream an NDJSON upload: read the body and send results at the same time.

If the body ends early enough, the answer begins after it, with an exact status.
Otherwise the answer begins once enough results are waiting, with status 200 and errors
in their lines, while the rest of the body is read. A client that reads only after it
has sent everything is not blocked, because the broker keeps up to
``SPOOLED_RECORDS_MAX`` results in a compact form.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ...broker.topics import Topic
from ...errors import InvalidRequest, SteleError
from ...work_budget import TURN_BYTES, pause
from ..errors import HttpError, problem_of, problem_response
from ..http.exchange import BODY, Exchange
from ..requests import join
from .encoding import Parsed, RecordEncoding
from .large_records import parse_in_turns
from .upload import ERRORS_SHOWN_MAX, Chunk, Upload, errors_of, results_of, settle_all

logger = logging.getLogger(__name__)

# The answer begins before the end of the body once this many results wait, or the first has waited this long.
EARLY_RESULTS = 10_000
EARLY_AFTER_S = 1.0
# Records that a client may send without reading a result; the broker keeps about 12 bytes for each. One that is refused
# counts as ``ERROR_WEIGHT``.
SPOOLED_RECORDS_MAX = 8_000_000
# Bytes of lines processed in one turn of the loop, which takes about 40 µs.
BLOCK_BYTES = 4 * 1024


class NdjsonUpload(Response):
    """Response of the produce route that reads the body while it sends results."""

    media_type = "application/x-ndjson"

    def __init__(
        self,
        request: Request,
        upload: Upload,
        encoding: RecordEncoding,
        topic: Topic,
        *,
        is_plain: bool,
        line_bytes_max: int,
        timeout_ms: int,
    ) -> None:
        """Begin an upload to a topic; unless it ``is_plain``, its records may have to be encoded."""
        super().__init__(status_code=200)
        self._request = request
        self._upload = upload
        self._encoding = encoding
        self._topic = topic
        self._is_plain = is_plain
        self._line_bytes_max = line_bytes_max
        self._timeout_ms = timeout_ms
        # Then its one batch is appended when all records have arrived.
        self._is_whole = upload.is_whole
        self._is_read = False
        self._failure: HttpError | SteleError | None = None
        self._progress = asyncio.Event()
        self._room = asyncio.Event()
        # Lines that have been taken are no longer held; the client may pause between them.
        self._body: Exchange | None = request.scope.get(BODY)
        if self._body is not None:
            self._body.is_stream = not self._is_whole
        self._answered_weight = 0
        self._first_result_s: float | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reader = asyncio.create_task(self._read())
        try:
            await self._until_answer_is_due()
            if self._is_read:
                await self._answer_whole(scope, receive, send)
            else:
                await self._answer_meanwhile(send)
        except ClientDisconnect:
            logger.debug("the client disconnected during an upload; the complete lines are stored")
        finally:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)

    # ── reading ──

    async def _read(self) -> None:
        try:
            async for lines in self._lines():
                start = 0
                while start < len(lines):
                    end = lines.find(b"\n", start + BLOCK_BYTES) + 1 or len(lines)
                    await self._take(lines, start, end)
                    start = end
                    await pause()
                    await self._upload.room()
                    if self._is_whole and self._upload.error_count >= ERRORS_SHOWN_MAX:
                        # Nothing will be stored, and no more errors are shown.
                        return
                if self._body is not None and not self._is_whole:
                    self._body.release(len(lines))
                if not self._is_whole:
                    self._upload.append()
                    self._note_progress()
                while self._upload.weight - self._answered_weight > SPOOLED_RECORDS_MAX:
                    self._room.clear()
                    await self._room.wait()
                if self._body is not None:
                    # What was sent of the next line has waited for the broker.
                    self._body.begin_line()
            if not (self._is_whole and self._upload.error_count):
                self._upload.append()
        except (HttpError, SteleError) as error:
            if not self._is_whole:
                self._upload.append()
            self._failure = error
        except ClientDisconnect:
            # A part of the one batch would make its retry fail.
            if not self._is_whole:
                self._upload.append()
        finally:
            self._is_read = True
            self._progress.set()

    async def _take(self, lines: bytes, start: int, end: int) -> None:
        """Add whole lines: decoded together, or one by one if one of them is large, special or invalid."""
        if self._is_plain and end - start <= TURN_BYTES and self._upload.add_lines(lines[start:end]):
            return
        parsed: list[Parsed | SteleError] = []
        while start < end:
            stop = lines.find(b"\n", start, end)
            if stop < 0:
                stop = end
            # Not copied: it may be large. An error may keep it, so it is not released here.
            line = memoryview(lines)[start:stop]
            if stop - start > TURN_BYTES or bytes(line).strip():
                parsed.append(await _parsed(line))
            start = stop + 1
        for record in await self._encoding.records(self._topic, parsed, self._upload.records):
            if isinstance(record, SteleError):
                self._upload.add_error(record)
            else:
                await self._upload.add_in_turns(record)

    async def _lines(self) -> AsyncGenerator[bytes]:
        """Yield whole lines, as many as arrived together."""
        rest: list[bytes] = []
        rest_bytes = 0
        async for chunk in self._request.stream():
            end = chunk.rfind(b"\n") + 1
            first = chunk.find(b"\n") + 1
            if rest_bytes + (first or len(chunk)) > self._line_bytes_max:
                raise HttpError(
                    413,
                    f"a line is longer than {self._line_bytes_max} bytes; the lines before it are stored",
                    limit=self._line_bytes_max,
                )
            if end:
                rest.append(chunk[:end])
                yield await join(rest)
                rest, rest_bytes = [], 0
            if end < len(chunk):
                rest.append(chunk[end:])
                rest_bytes += len(chunk) - end
        if rest:
            yield await join(rest)

    def _note_progress(self) -> None:
        if self._first_result_s is None and self._upload.chunks:
            self._first_result_s = asyncio.get_running_loop().time()
        self._progress.set()

    # ── answering ──

    async def _until_answer_is_due(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._is_read and self._upload.records < EARLY_RESULTS:
            timeout = None
            if self._first_result_s is not None:
                timeout = self._first_result_s + EARLY_AFTER_S - loop.time()
                if timeout <= 0:
                    return
            self._progress.clear()
            try:
                await asyncio.wait_for(self._progress.wait(), timeout)
            except TimeoutError:
                return
        if self._is_whole:
            while not self._is_read:
                self._progress.clear()
                await self._progress.wait()

    async def _answer_whole(self, scope: Scope, receive: Receive, send: Send) -> None:
        chunks = self._upload.take_chunks()
        await settle_all(chunks, self._timeout_ms)
        failed = sum(chunk.error_count for chunk in chunks)
        total = sum(map(len, chunks))
        if self._is_whole and self._upload.error_count:
            await problem_response(self._upload.refusal())(scope, receive, send)
        elif self._failure is not None and not total:
            await problem_response(_problem(self._failure))(scope, receive, send)
        elif total and failed == total and self._failure is None:
            await problem_response(all_refused(chunks))(scope, receive, send)
        else:
            await self._start(send, 207 if failed or self._failure else 200, chunks)
            for chunk in chunks:
                await self._send_results(send, chunk)
            await self._end(send)

    async def _answer_meanwhile(self, send: Send) -> None:
        await self._start(send, 200, [])
        while True:
            chunks = self._upload.take_chunks()
            await settle_all(chunks, self._timeout_ms)
            for chunk in chunks:
                await self._send_results(send, chunk)
                self._answered_weight += chunk.weight
                self._room.set()
            if not chunks:
                if self._is_read:
                    break
                self._progress.clear()
                await self._progress.wait()
        await self._end(send)

    async def _start(self, send: Send, status: int, chunks: list[Chunk]) -> None:
        headers = [(b"content-type", b"application/x-ndjson")]
        # Results follow when they are final; the durability that they will have is already known.
        receipts = [receipt for chunk in chunks if (receipt := chunk.durability()) is not None]
        receipt = min(receipts, default=self._upload.promised_durability)
        headers.append((b"durability", receipt.label.encode()))
        await send({"type": "http.response.start", "status": status, "headers": headers})

    async def _send_results(self, send: Send, chunk: Chunk) -> None:
        for texts in results_of(chunk, b"\n"):
            await send({"type": "http.response.body", "body": texts, "more_body": True})
            await pause()

    async def _end(self, send: Send) -> None:
        last = b""
        if self._failure is not None:
            last = msgspec.json.encode({"error": _problem(self._failure)}) + b"\n"
        await send({"type": "http.response.body", "body": last, "more_body": False})


async def _parsed(line: memoryview) -> Parsed | SteleError:
    try:
        record, value = await parse_in_turns(line)
    except InvalidRequest as error:
        return error
    return Parsed(record, len(line), value)


def _problem(failure: HttpError | SteleError) -> dict[str, object]:
    return failure.problem if isinstance(failure, HttpError) else problem_of(failure)


def all_refused(chunks: list[Chunk]) -> dict[str, object]:
    """Return the problem of a request of which no record was stored.

    It has the first error, and all errors by index.
    """
    first = next(error for chunk in chunks for index in range(len(chunk)) if (error := chunk.error_at(index)))
    return {**problem_of(first), "errors": errors_of(chunks)}
