"""StreamSlots for answers that stream: so many of a kind at once, and none for good for a client that takes nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator

from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from .errors import http_problem, problem_response

logger = logging.getLogger(__name__)

# Whoever waits for a place gets that of a client that took nothing for so long.
PATIENCE_S = 30.0


class BrokenOff(Exception):
    """Raised in an answer that has begun: it ends without its end, so that its client knows that there was more."""


class StreamSlots:
    """``most`` answers of one kind, which ``kind`` names to whoever gets no place."""

    def __init__(self, kind: str, most: int, *, patience_s: float = PATIENCE_S) -> None:
        self.kind = kind
        self.most = most
        self._patience_s = patience_s
        self._held: set[Place] = set()

    @property
    def taken(self) -> int:
        return len(self._held)

    def take(self) -> Place | None:
        """A place, that of the client that has been silent longest if it must be; None if all are in use."""
        if len(self._held) >= self.most and not self._free_one():
            return None
        place = Place()
        self._held.add(place)
        return place

    def give_back(self, place: Place) -> None:
        self._held.discard(place)

    def _free_one(self) -> bool:
        waiting = [place for place in self._held if place.waits_since_s is not None]
        longest = min(waiting, key=lambda place: place.waits_since_s or 0.0, default=None)
        now_s = asyncio.get_running_loop().time()
        if longest is None or now_s - (longest.waits_since_s or now_s) < self._patience_s:
            return False
        longest.break_off()
        self._held.discard(longest)
        return True


class Place:
    """``waits_since_s`` is when its client was last sent something that it has not taken yet."""

    def __init__(self) -> None:
        self.waits_since_s: float | None = None
        self._until = asyncio.timeout(None)

    def sending(self, send: Send) -> Send:
        """``send``, but raising ``BrokenOff`` if the place is given to somebody else meanwhile."""

        async def watched(message: Message) -> None:
            self.waits_since_s = asyncio.get_running_loop().time()
            self._until = asyncio.timeout(None)
            try:
                async with self._until:
                    await send(message)
            except TimeoutError:
                raise BrokenOff("its client took nothing, and another waited for its place") from None
            finally:
                self.waits_since_s = None

        return watched

    def break_off(self) -> None:
        self._until.reschedule(asyncio.get_running_loop().time())


class SlottedStream(StreamingResponse):
    """Holds a place (if ``places`` are counted) as long as it is sent, or says that there is none.

    ``content`` may break it off, and is closed with it.
    """

    def __init__(
        self,
        content: AsyncGenerator[bytes],
        places: StreamSlots | None,
        *,
        headers: dict[str, str] | None = None,
        media_type: str,
    ) -> None:
        super().__init__(content, headers=headers, media_type=media_type)
        self._content = content
        self._places = places

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        places, place = self._places, None
        if places is not None:
            place = places.take()
            if place is None:
                detail = f"{places.most} {places.kind} are running; stop one, or try again in a moment"
                await problem_response(http_problem(429, detail))(scope, receive, send)
                return
        try:
            await super().__call__(scope, receive, send if place is None else place.sending(send))
        except BrokenOff as reason:
            # The server closes a connection whose answer has no end.
            path = scope["path"][:500].encode("unicode_escape").decode()
            logger.warning("%s was broken off: %s", path, reason)
        finally:
            if places is not None and place is not None:
                places.give_back(place)
            await self._content.aclose()
