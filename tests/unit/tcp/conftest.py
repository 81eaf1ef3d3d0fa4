"""A toy door on a loopback socket, its works and its clock in the hands of the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.support.toy_door import Door, Limits, OpenDoor, SteeredClock


@pytest.fixture
async def clock() -> SteeredClock:
    return SteeredClock(asyncio.get_running_loop())


@pytest.fixture
async def open_door() -> AsyncIterator[OpenDoor]:
    doors: list[Door] = []

    async def make(limits: Limits | None = None, *, connections_max: int = 100) -> Door:
        door = Door(limits=limits or Limits(), connections_max=connections_max)
        await door.start()
        doors.append(door)
        return door

    yield make
    for door in doors:
        await door.close()
