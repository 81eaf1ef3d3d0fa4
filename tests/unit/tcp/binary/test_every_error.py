"""Whatever a handler's call of the layers below raises, its client gets a frame of the right type.

Every message of the dispatch table is sent over a connection without a socket. Each call that its handler makes of the
broker, the groups and the transactions raises each leaf of the tree of errors.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from pathlib import Path

import pytest
from stele.wire import messages as m

from app.broker.placement import Placement
from app.broker.producing.produce import Acks
from app.tcp.binary.connection import BinaryConnection
from app.tcp.binary.dispatch import HANDLERS
from app.tcp.errors import ERROR_CODES
from tests.support.batches import batch_of
from tests.support.before_login import Registry, Wire
from tests.support.binary_samples import TOPIC, codes_of, sample
from tests.support.listeners import listeners
from tests.support.raising import Faults, an_error, leaves, pairs, raising

KINDS = [m.ProduceRequest, *HANDLERS]
# A request that calls nothing.
NEXT = m.AuthenticateRequest(mechanism="PLAIN", data=b"").encode()

# Calls that only decide whether the topic is created first: the produce itself reports what is wrong with it.
DECIDES: dict[type[m.Request], set[str]] = {
    m.ProduceRequest: {"broker.topic"},
    m.ProduceBatchRequest: {"broker.topic"},
    m.TransactionalProduceRequest: {"broker.topic"},
    m.ConditionalProduceRequest: {"broker.topic"},
}


async def ask(connection: BinaryConnection, wire: Wire, frame: bytes) -> list[bytes]:
    """Send a request and the next one; return the frames of both responses."""
    wire.written.clear()
    connection.data_received(frame + NEXT)
    async with asyncio.timeout(60):
        while True:
            frames, position = list[bytes](), 0
            while len(wire.written) - position >= 4:
                size = int.from_bytes(wire.written[position : position + 4])
                if position + size > len(wire.written):
                    break
                frames.append(bytes(wire.written[position : position + size]))
                position += size
            if len(frames) >= 2 or wire.is_over:
                return frames
            await asyncio.sleep(0)


@pytest.mark.every(3)
@pytest.mark.parametrize("are_all", [False, pytest.param(True, marks=pytest.mark.long)], ids=["each", "all"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
async def test_every_error_of_every_call_is_answered_and_the_connection_lives(
    kind: type[m.Request], are_all: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    frame = sample(kind).encode()
    wrong: list[str] = []
    async with listeners(tmp_path) as at:
        await at.broker.create_topic(TOPIC, placement=Placement(partitions=1))
        at.broker.produce(TOPIC, 0, batch_of([b"a"]), acks=Acks.LEADER)
        faults = Faults()
        listener = replace(
            at.binary,
            broker=raising(at.broker, faults, "broker"),
            groups=raising(at.binary.groups, faults, "groups"),
            transactions=raising(at.binary.transactions, faults, "transactions"),
        )
        wire = Wire("10.0.0.1")
        connection = BinaryConnection(listener=listener, settings=at.broker.settings, registry=Registry())
        connection.connection_made(wire)
        await ask(connection, wire, frame)
        for call, leaf in pairs(list(faults.calls), leaves(), are_all=are_all):
            faults.arm(call, an_error(leaf))
            frames = await ask(connection, wire, frame)
            assert len(frames) == 2, f"{call} raises {leaf.__name__}: the connection has ended"
            if not faults.raised or call in DECIDES.get(kind, ()):
                continue
            is_simple = kind.TYPE <= m.LAST_ADR_0009_TYPE
            answer = m.decode_response(frames[0][4], frames[0][5:])
            right = (
                isinstance(answer, m.ErrorResponse) if is_simple and kind is not m.MetadataRequest else None
            )
            if not (right or int(ERROR_CODES[leaf]) in codes_of(answer)):
                wrong.append(f"{leaf.__name__} of {call}: {answer}")
        assert wrong == []
        assert caplog.records == []
