"""One record for many live tails: read and encoded once, and sent to a few of them in one turn of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Self

import pytest
from stele.wire import record_batch as rb
from stele.wire.record_batch import RecordView

from app.api.records.form import RecordForm
from app.api.records.json_records import RecordOut
from app.api.records.tail_streams import Shown, events
from app.broker.broker import Broker
from app.broker.producing.produce import Acks
from app.composition import open_broker
from app.query.filters import make_filter
from app.query.tail_reads import FORMS_MAX, KEPT_BYTES, TailReads
from app.settings import Settings
from app.storage.waiters import WAKEUPS_PER_TURN
from tests.support.turns import CallsPerTurn

TAILS = 10 * WAKEUPS_PER_TURN
Encoded = CallsPerTurn[..., RecordOut]


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    opened = await open_broker(Settings(data_dir=tmp_path))
    await opened.create_topic("orders", partitions=1)
    yield opened
    await opened.close()


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> Encoded:
    """The records that are encoded."""
    counted = CallsPerTurn(RecordForm.out)

    def out(form: RecordForm, partition: int, record: RecordView) -> RecordOut:
        return counted(form, partition, record)

    monkeypatch.setattr(RecordForm, "out", out)
    return counted


def produce(broker: Broker, value: bytes) -> None:
    broker.produce("orders", 0, rb.build_values([value], 1000), acks=Acks.LEADER)


class Crowd:
    """Tails at the end of the topic, and what each of them got."""

    def __init__(self, broker: Broker, forms: list[RecordForm]) -> None:
        self.reads = TailReads(broker)
        self.got: list[bytes] = [b""] * len(forms)
        self.took = CallsPerTurn(self._take)
        self.all = asyncio.Event()
        self._missing = 0
        self._streams = [self._stream(broker, form) for form in forms]
        self._tasks: list[asyncio.Task[None]] = []

    def _stream(self, broker: Broker, form: RecordForm) -> AsyncGenerator[bytes]:
        end = broker.log_state("orders", 0).high_watermark
        shown = Shown(make_filter(), form, 0, self.reads, broker.decoded.reader())
        return events(broker, broker.topic("orders"), {0: end}, only=0, shown=shown)

    async def __aenter__(self) -> Self:
        for stream in self._streams:
            await anext(stream)
        self._tasks = [asyncio.create_task(self._follow(number)) for number in range(len(self._streams))]
        # They wait for records.
        for _ in range(10):
            await asyncio.sleep(0)
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for stream in self._streams:
            await stream.aclose()

    async def _follow(self, number: int) -> None:
        async for block in self._streams[number]:
            self.took(number, block)

    def _take(self, number: int, block: bytes) -> None:
        self.got[number] += block
        if block.endswith(b"\n\n"):
            self._missing -= 1
        if not self._missing:
            self.all.set()

    async def receive(self) -> list[bytes]:
        """Return what each gets of the next record."""
        self.got = [b""] * len(self.got)
        self._missing = len(self.got)
        self.all.clear()
        await self.all.wait()
        return self.got


async def test_a_record_is_read_and_encoded_once_and_sent_to_a_few_tails_per_turn(
    broker: Broker, encoded: Encoded, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched = CallsPerTurn(broker.fetch)
    monkeypatch.setattr(broker, "fetch", fetched)
    async with Crowd(broker, [RecordForm()] * TAILS) as crowd:
        for number in range(3):
            produce(broker, b"%d" % number)
            got = await crowd.receive()
            assert set(got) == {got[0]}
            assert b'"value":"%d"' % number in got[0]
    assert encoded.total == fetched.total == 3
    assert crowd.took.total == 3 * TAILS
    # Those that go on in the turn of the append, and the next portion.
    assert crowd.took.most <= 2 * WAKEUPS_PER_TURN


async def test_a_large_record_is_kept_for_all_tails_and_no_longer(broker: Broker, encoded: Encoded) -> None:
    async with Crowd(broker, [RecordForm()] * TAILS) as crowd:
        for number in range(12):
            produce(broker, b"x" * 200_000)
            await crowd.receive()
            assert encoded.total == number + 1
            assert crowd.reads.bytes <= KEPT_BYTES


async def test_texts_are_kept_for_a_few_ways_to_show_a_record(broker: Broker, encoded: Encoded) -> None:
    forms = [RecordForm(preview=number + 1) for number in range(FORMS_MAX + 2)]
    async with Crowd(broker, forms * 2) as crowd:
        produce(broker, b"abcdefgh")
        got = await crowd.receive()
    assert got[: len(forms)] == got[len(forms) :]
    assert b'"value":"abc"' in got[2]
    # Once for each way that is kept, and twice for the two others.
    assert encoded.total == FORMS_MAX + 4


async def test_a_tail_that_gets_an_older_read_goes_on_to_the_records_after_it(broker: Broker) -> None:
    async with Crowd(broker, [RecordForm()]) as crowd:
        produce(broker, b"first")
        await crowd.receive()
        # It begins where the kept read does, after the second append.
        shown = Shown(make_filter(), RecordForm(), 0, crowd.reads, broker.decoded.reader())
        late = events(broker, broker.topic("orders"), {0: 0}, only=0, shown=shown)
        await anext(late)
        produce(broker, b"second")
        got = await anext(late)
        if b"second" not in got:
            got += await asyncio.wait_for(anext(late), 10)
        await late.aclose()
    assert got.count(b"data: ") == 2
