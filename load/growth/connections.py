"""Measure connections of each protocol that are opened, have a small request answered, idle, and are closed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from stele.wire.messages import MetadataRequest

from ..kafka_frames import metadata_request
from ..process_usage import raise_open_files
from .costs import Costs, Point
from .crowd import Crowd

SIZES = (100, 1_000, 9_900)
_IDLE_S = 10.0


class Idle:
    """So many connections, which can be opened and closed again and again."""

    def __init__(self, crowd: Crowd, request: bytes, size: int) -> None:
        self._crowd, self._request, self._size = crowd, request, size

    async def open(self) -> int:
        await self._crowd.open(self._size, self._request)
        return self._size

    async def wait(self) -> int:
        await asyncio.sleep(_IDLE_S)
        return self._size

    async def close(self) -> int:
        await self._crowd.leave()
        return self._size


async def connections(costs: Costs, sizes: Sequence[int] = SIZES) -> list[Point]:
    """Measure so many connections of each protocol; a unit is a connection."""
    raise_open_files()
    points: list[Point] = []
    broker = costs.broker
    host = broker.host.encode()
    kinds = {
        "Kafka": (broker.kafka_port, metadata_request([]), host),
        "binary": (broker.binary_port, MetadataRequest(topics=()).encode(), host),
        "HTTP": (broker.http_port, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", b"HTTP/1.1 2"),
    }
    for protocol, (port, request, mark) in kinds.items():
        for size in sizes:
            idle = Idle(Crowd(broker.host, port, mark), request, size)
            works = {"opened": idle.open, "idle": idle.wait, "closed": idle.close}
            # Each is done with all of them: only so many may be open.
            costs_of = {what: await costs.cost(work) for what, work in works.items()}
            points += [
                Point(
                    what=f"{protocol}: {what}",
                    size=size,
                    cost=costs_of[what],
                    holds_ms=await costs.holds_ms(work),
                )
                for what, work in works.items()
            ]
    return points
