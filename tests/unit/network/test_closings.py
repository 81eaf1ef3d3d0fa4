"""Many clients that disconnect at the same moment: their sockets are closed in turns of the event loop."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import pytest

from app.network.closings import CLOSINGS_PER_TURN
from app.tcp.connection import Connection
from tests.support.before_login import GOOD_CLIENT, Wire, targets
from tests.support.certificates import Authority


@pytest.mark.parametrize("listener", ["kafka", "binary", "http"])
async def test_a_turn_closes_a_bounded_number_of_connections(listener: str, tmp_path: Path) -> None:
    count = 10 * CLOSINGS_PER_TURN
    async with targets(tmp_path, Authority(tmp_path)) as all_targets:
        target = all_targets[listener]
        wires = [Wire(GOOD_CLIENT) for _ in range(count)]
        connections = [target.connect(GOOD_CLIENT) for _ in wires]
        for connection, wire in zip(connections, wires, strict=True):
            connection.connection_made(wire)
        for connection, wire in zip(connections, wires, strict=True):
            if not connection.eof_received():
                # As a transport does.
                wire.close()
        closed = [sum(wire.is_over for wire in wires)]
        while closed[-1] < count:
            await asyncio.sleep(0)
            closed.append(sum(wire.is_over for wire in wires))
            assert closed[-1] - closed[-2] <= CLOSINGS_PER_TURN
        assert closed[0] <= CLOSINGS_PER_TURN
        for connection in connections:
            connection.connection_lost(None)


@pytest.mark.parametrize("listener", ["kafka", "binary"])
async def test_an_end_that_is_read_twice_is_one_end(listener: str, tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    failures: list[object] = []
    loop.set_exception_handler(lambda _, context: failures.append(context))
    async with targets(tmp_path, Authority(tmp_path)) as all_targets:
        connection = cast("Connection[object]", all_targets[listener].connect(GOOD_CLIENT))
        wire = Wire(GOOD_CLIENT)
        connection.connection_made(wire)
        answered: asyncio.Future[None] = loop.create_future()
        connection.answer_when(answered, 60_000, lambda _: [b"answer"])
        # As after ``pause_reading`` and ``resume_reading``.
        for _ in range(2):
            assert connection.eof_received()
        answered.set_result(None)
        await asyncio.sleep(0)
        assert wire.written.endswith(b"answer")
        connection.connection_lost(None)
    assert failures == []
