"""Close connections whose clients have disconnected in turns of the event loop, because many may do so at once.

The end of a process with ten thousand connections is ten thousand ends of streams in one turn of the loop. To read
these takes the loop itself a µs or two each; to close the sockets, some 20 µs each, can wait for a moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import lru_cache

from ..turns import Turns

CLOSINGS_PER_TURN = 32


@lru_cache(maxsize=1)
def _turns_of(_loop: asyncio.AbstractEventLoop) -> Turns:
    return Turns(CLOSINGS_PER_TURN)


def end_in_turn(end: Callable[[], object]) -> None:
    """Call ``end`` now or, if many clients leave at the same time, in one of the next turns of the loop."""
    _turns_of(asyncio.get_running_loop()).call(end)
