"""A toy listener on a loopback socket, whose work and clock the test controls; without and with TLS."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator

import pytest

from app.broker.reading.unread_responses import UnreadResponses
from app.network.accept_loop import AcceptOptions
from tests.support.certificates import Authority
from tests.support.toy_listener import Limits, Listener, OpenListener, SteeredClock


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
async def clock(monkeypatch: pytest.MonkeyPatch) -> SteeredClock:
    # Its jumps are time that passes, not a broker that stands still.
    monkeypatch.setattr("app.patience._LATE_S", math.inf)
    return SteeredClock(asyncio.get_running_loop())


@pytest.fixture(params=["plaintext", "tls"])
async def open_listener(request: pytest.FixtureRequest, authority: Authority) -> AsyncIterator[OpenListener]:
    listeners: list[Listener] = []

    async def make(
        limits: Limits | None = None,
        *,
        connections_max: int = 100,
        accept: AcceptOptions | None = None,
        unread: UnreadResponses | None = None,
    ) -> Listener:
        listener = Listener(
            limits=limits or Limits(),
            connections_max=connections_max,
            authority=authority if request.param == "tls" else None,
            accept=accept,
            unread=unread,
        )
        await listener.start()
        listeners.append(listener)
        return listener

    yield make
    for listener in listeners:
        await listener.close()
