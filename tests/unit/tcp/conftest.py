"""A toy listener on a loopback socket, whose work and clock the test controls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.support.toy_listener import Limits, Listener, OpenListener, SteeredClock


@pytest.fixture
async def clock() -> SteeredClock:
    return SteeredClock(asyncio.get_running_loop())


@pytest.fixture
async def open_listener() -> AsyncIterator[OpenListener]:
    listeners: list[Listener] = []

    async def make(limits: Limits | None = None, *, connections_max: int = 100) -> Listener:
        listener = Listener(limits=limits or Limits(), connections_max=connections_max)
        await listener.start()
        listeners.append(listener)
        return listener

    yield make
    for listener in listeners:
        await listener.close()
