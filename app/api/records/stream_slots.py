"""Stream answers, and break off those that hold what others wait for.

The number of streams of one kind is limited: a client that reads nothing for ``PATIENCE_S`` loses its slot when
another needs it. A stream that holds unpacked batches loses their room in the same way (``decoded_bytes``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator

from starlette.responses import Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from ...broker.reading.decoded_bytes import DecodedReader
from ...errors import SteleError
from ..errors import http_problem, problem_response
from ..http.exchange import BODY, Exchange

logger = logging.getLogger(__name__)

# A larger answer is not made as a whole.
WHOLE_BYTES_MAX = 1024 * 1024
# A new stream takes the slot of a client that has read nothing for this long.
PATIENCE_S = 30.0


class AnswerAborted(Exception):
    """Raised to break off a streamed response.

    The client sees that the response is incomplete, because its end is missing.
    """


class StreamSlots:
    """At most ``most`` streams of one kind; ``kind`` is its name in errors."""

    def __init__(self, kind: str, most: int, *, patience_s: float = PATIENCE_S) -> None:
        self.kind = kind
        self.most = most
        self._patience_s = patience_s
        self._held: set[StreamSlot] = set()

    @property
    def taken(self) -> int:
        return len(self._held)

    def take(self, slot: StreamSlot) -> bool:
        """Take ``slot``; False if all are in use.

        If necessary, one is taken from the client that has been silent the longest.
        """
        if len(self._held) >= self.most and not self._free_one():
            return False
        self._held.add(slot)
        return True

    def give_back(self, slot: StreamSlot) -> None:
        """Free ``slot``, unless it has been taken from its stream."""
        self._held.discard(slot)

    def _free_one(self) -> bool:
        waiting = [slot for slot in self._held if slot.waits_since_s is not None]
        longest = min(waiting, key=lambda slot: slot.waits_since_s or 0.0, default=None)
        now_s = asyncio.get_running_loop().time()
        if longest is None or now_s - (longest.waits_since_s or now_s) < self._patience_s:
            return False
        longest.abort()
        self._held.discard(longest)
        return True


class StreamSlot:
    """The slot of one stream.

    ``waits_since_s`` is the loop time at which the send began that the client has not
    read yet; None if there is none.
    """

    def __init__(self, reader: DecodedReader | None = None) -> None:
        self.waits_since_s: float | None = None
        self._sender: asyncio.Task[None] | None = None
        self._is_aborted = False
        self._reader = reader

    def sending(self, send: Send, *, is_counted: bool) -> Send:
        """Wrap ``send`` to raise ``AnswerAborted`` when others get what the stream holds.

        Unless it ``is_counted``, that is only while its reader holds something.
        """

        async def watched(message: Message) -> None:
            if not is_counted and (self._reader is None or not self._reader.held_bytes):
                await send(message)
                return
            self.waits_since_s = asyncio.get_running_loop().time()
            sender = self._sender = asyncio.current_task()
            try:
                await send(message)
            except asyncio.CancelledError:
                if not self._is_aborted or sender is None or sender.uncancel():
                    raise
                raise AnswerAborted("its client read nothing, and others needed what it held") from None
            finally:
                # Its task refers to this slot: the cycle would wait for a collection of garbage.
                self.waits_since_s = self._sender = None

        return watched

    def abort(self) -> None:
        """Break off the send that waits for the client."""
        if self._sender is not None and not self._is_aborted:
            self._is_aborted = True
            self._sender.cancel()


class SlottedStream(StreamingResponse):
    """Response that holds one of ``slots`` while it streams, or answers 429.

    ``slots`` None means no limit. ``content`` may raise ``AnswerAborted``, and is closed
    with the response. ``reader`` is what it reads records by.
    """

    def __init__(
        self,
        content: AsyncGenerator[bytes],
        slots: StreamSlots | None,
        *,
        reader: DecodedReader | None = None,
        headers: dict[str, str] | None = None,
        media_type: str,
    ) -> None:
        super().__init__(content, headers=headers, media_type=media_type)
        self._content = content
        self._slots = slots
        self._reader = reader
        self._slot: StreamSlot | None = None

    def give_back(self) -> None:
        """Free the slot before the end of the stream: what follows needs none."""
        if self._slots is not None and self._slot is not None:
            self._slots.give_back(self._slot)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        slots, reader = self._slots, self._reader
        slot = StreamSlot(reader)
        if slots is not None:
            if not slots.take(slot):
                detail = (
                    f"{slots.most} {slots.kind} are running, which is the limit; stop one or try again later"
                )
                await problem_response(http_problem(429, detail))(scope, receive, send)
                await self._content.aclose()
                return
            self._slot = slot
        if reader is not None:
            reader.client = slot
        try:
            await self._stream(scope, receive, slot.sending(send, is_counted=slots is not None))
        except AnswerAborted as reason:
            # uvicorn closes the connection, because the answer has no end.
            path = scope["path"][:500].encode("unicode_escape").decode()
            logger.warning("the answer to %s was aborted: %s", path, reason)
        finally:
            self.give_back()
            if reader is not None:
                reader.client = None
            await self._content.aclose()

    async def _stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the content until it ends or the client leaves."""
        exchange: Exchange | None = scope.get(BODY)
        sender = asyncio.current_task()
        if exchange is None or sender is None:
            # Under a server other than ours. A second task waits for the client to leave.
            await super().__call__(scope, receive, send)
            return
        if exchange.has_left:
            return
        exchange.observe_leaving(sender.cancel)
        try:
            await self.stream_response(send)
        except asyncio.CancelledError:
            if not exchange.has_left or sender.uncancel():
                raise
        finally:
            exchange.observe_leaving(None)


async def sized_or_streamed(
    content: AsyncGenerator[bytes],
    reader: DecodedReader,
    *,
    media_type: str,
    headers: dict[str, str] | None = None,
) -> Response:
    """Return ``content`` as a plain response, or as a stream if it is large.

    It is large beyond ``WHOLE_BYTES_MAX``.

    Raises what ``content`` raises in its first ``WHOLE_BYTES_MAX``; later errors break the answer off.
    """
    parts: list[bytes] = []
    size = 0
    async for part in content:
        parts.append(part)
        size += len(part)
        if size > WHOLE_BYTES_MAX:
            rest = _continued(parts, content)
            return SlottedStream(rest, None, reader=reader, headers=headers, media_type=media_type)
    return Response(b"".join(parts), headers=headers, media_type=media_type)


async def _continued(parts: list[bytes], content: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    try:
        while parts:
            yield parts.pop(0)
        async for part in content:
            yield part
    except SteleError as error:
        raise AnswerAborted(str(error)) from error
    finally:
        await content.aclose()
