"""What a producer is told of batches that it sent behind one that could not be stored."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest
from stele.wire import record_batch as rb

from app.errors import OutOfOrderSequence, ProducerFenced, StorageUnavailable
from app.storage.engine import AppendTicket
from app.storage.shared.engine import SharedEngine
from app.storage.shared.meta import StoreKind
from app.storage.shared.store.object_store import Buffer, ObjectStoreError
from tests.support.batches import batch_of, spec_of
from tests.support.model_meta import ModelMeta
from tests.support.shared_cluster import NAMES, OPTIONS, TOPIC_ID
from tests.support.simulated_time import SimulatedClock, run_simulated
from tests.support.storage_faults import ModelStore

PRODUCER = 7
AFTER_THE_ERROR_S = 40


class RefusingStore(ModelStore):
    """Takes no objects while ``is_down``."""

    is_down = False

    async def put(self, key: str, data: Buffer) -> None:
        if self.is_down:
            raise ObjectStoreError("the store is down")
        await super().put(key, data)


class Producer:
    """Appends single records with the given sequences, and knows what became of them."""

    def __init__(self) -> None:
        self.clock = SimulatedClock()
        self.store = RefusingStore({})
        self.meta = ModelMeta(self.clock.now_ms)
        self.engine = SharedEngine(
            self.meta,
            {StoreKind.OBJECTS: self.store},
            incarnation=UUID(int=1),
            clock=self.clock,
            options=OPTIONS,
        )

    async def open(self) -> None:
        await self.engine.open()
        await self.engine.create([spec_of(NAMES[0], clock=self.clock, topic_id=TOPIC_ID)])

    def send(self, sequence: int, epoch: int = 0) -> AppendTicket:
        batch = batch_of(
            [b"%d" % sequence], producer_id=PRODUCER, base_sequence=sequence, producer_epoch=epoch
        )
        return self.engine.append(NAMES[0], batch, rb.check_produced(batch), sync=True)

    async def outcome(self, sequence: int, epoch: int = 0) -> int:
        """Append a record and return its offset, or raise its error."""
        ticket = self.send(sequence, epoch)
        assert ticket.future is not None
        await ticket.future
        return ticket.base_offset


@pytest.mark.parametrize("stored", [0, 3])
def test_batches_behind_one_that_failed_are_to_be_sent_again_in_order(stored: int) -> None:
    """Neither a log that knows the producer nor one that does not tells it to start again."""

    async def run() -> None:
        producer = Producer()
        await producer.open()
        for sequence in range(stored):
            assert await producer.outcome(sequence) == sequence
        producer.store.is_down = True
        with pytest.raises(StorageUnavailable, match="the store is down"):
            await producer.outcome(stored)
        producer.store.is_down = False
        for sequence in (stored + 1, stored + 2):
            with pytest.raises(StorageUnavailable, match="a batch before it failed"):
                await producer.outcome(sequence)
        for sequence in range(stored, stored + 3):
            assert await producer.outcome(sequence) == sequence
        await producer.engine.close()

    run_simulated(run)


@pytest.mark.parametrize("is_fenced", [True, False])
def test_an_earlier_version_of_the_producer_does_not_make_the_failed_batch_forgotten(is_fenced: bool) -> None:
    async def run() -> None:
        producer = Producer()
        await producer.open()
        producer.store.is_down = True
        with pytest.raises(StorageUnavailable, match="the store is down"):
            await producer.outcome(0, epoch=1)
        producer.store.is_down = False
        if is_fenced:
            producer.meta.named_epochs[PRODUCER] = 1
            with pytest.raises(ProducerFenced):
                await producer.outcome(0, epoch=0)
        else:
            assert await producer.outcome(0, epoch=0) == 0
        with pytest.raises(StorageUnavailable, match="a batch before it failed"):
            await producer.outcome(1, epoch=1)
        first = 0 if is_fenced else 1
        assert [await producer.outcome(sequence, epoch=1) for sequence in (0, 1)] == [first, first + 1]
        await producer.engine.close()

    run_simulated(run)


def test_a_batch_that_skips_others_for_good_is_out_of_order() -> None:
    async def run() -> None:
        producer = Producer()
        await producer.open()
        assert await producer.outcome(0) == 0
        with pytest.raises(OutOfOrderSequence):
            await producer.outcome(5)
        producer.store.is_down = True
        with pytest.raises(StorageUnavailable):
            await producer.outcome(1)
        producer.store.is_down = False
        await asyncio.sleep(AFTER_THE_ERROR_S)
        with pytest.raises(OutOfOrderSequence):
            await producer.outcome(2)
        # It was sent by way of another broker, or again.
        assert await producer.outcome(1) == 1
        with pytest.raises(OutOfOrderSequence):
            await producer.outcome(7)
        await producer.engine.close()

    run_simulated(run)
