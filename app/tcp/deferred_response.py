"""A response that is due when a future ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

Response = TypeVar("Response")


# Not frozen, because there is one per request, and a frozen instance takes twice as long to make.
@dataclass(slots=True, kw_only=True)
class DeferredResponse(Generic[Response]):
    """The result of a handler for work that many requests may share.

    The response is due when ``future`` ends, or after ``timeout_ms``. ``make`` is
    called with True in the first case and False in the second. Many requests may wait
    for one future; none of them ends or cancels it.
    """

    future: asyncio.Future[None]
    timeout_ms: int
    make: Callable[[bool], Response]

    async def wait(self) -> Response:
        """Wait for the response within a task, for callers that have one already."""
        done, _ = await asyncio.wait((self.future,), timeout=self.timeout_ms / 1000)
        return self.make(bool(done))
