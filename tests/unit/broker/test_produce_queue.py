"""Produces that need a thread: in order per partition, bounded, and none is lost or left waiting."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest
from stele.wire import record_batch as rb
from stele.wire.messages import Durability

from app.broker.producing.produce import Acks, PendingProduce, QueuedProduce
from app.broker.producing.produce_queue import ProduceQueue, in_thread
from app.broker.producing.recompress import PreparedBatches
from app.errors import BatchTooLarge, RequestTimedOut, SteleError
from app.storage.engine import AppendTicket
from app.storage.topic_partition import TopicPartition
from tests.support.batches import batch_of

ORDERS = TopicPartition("orders", 0)
OTHERS = TopicPartition("others", 0)
TIMEOUT_MS = 30_000


class Log:
    """Stands for the partitions: notes what was appended, in order."""

    def __init__(self, queue: ProduceQueue) -> None:
        self.queue = queue
        self.appended: list[bytes] = []
        self.sync: asyncio.Future[None] | None = None

    def put(
        self,
        value: bytes,
        *,
        name: TopicPartition = ORDERS,
        before: Callable[[], object] = lambda: None,
        fails: Exception | None = None,
        acks: Acks = Acks.LEADER,
    ) -> QueuedProduce:
        batch = batch_of([value])

        def prepare() -> PreparedBatches:
            before()
            return PreparedBatches(batch, rb.check_produced(batch))

        def append(prepared: PreparedBatches) -> PendingProduce:
            if fails is not None:
                raise fails
            (record,) = rb.decode_records(bytes(prepared.batches))
            self.appended.append(record.value or b"")
            offset = len(self.appended) - 1
            ticket = AppendTicket(
                base_offset=offset,
                last_offset=offset,
                log_append_time_ms=-1,
                log_start_offset=0,
                durability=Durability.APPENDED if self.sync is None else Durability.SYNCED,
                future=self.sync,
            )
            return PendingProduce(*name, ticket, acks)

        pending = QueuedProduce(*name, acks)
        self.queue.put(
            name,
            len(batch),
            prepare=lambda threads: in_thread(threads, prepare),
            write_ahead=lambda _: None,
            append=append,
            pending=pending,
        )
        return pending


def run(story: Callable[[Log], object], *, threads: int = 2, bytes_max: int = 1 << 20) -> None:
    async def play() -> None:
        queue = ProduceQueue(threads=threads, bytes_max=bytes_max)
        told = story(Log(queue))
        assert asyncio.iscoroutine(told)
        await told
        await queue.close()
        assert not queue.is_full
        assert not queue.is_busy(ORDERS)

    asyncio.run(play())


def test_a_partition_keeps_the_order_of_the_calls() -> None:
    async def story(log: Log) -> None:
        gate = threading.Event()
        # The first takes longest.
        first = log.put(b"0", before=gate.wait)
        rest = [log.put(str(number).encode()) for number in range(1, 20)]
        elsewhere = log.put(b"elsewhere", name=OTHERS)
        await elsewhere.wait(TIMEOUT_MS)
        assert log.appended == [b"elsewhere"], "another partition does not wait for it"
        assert log.queue.is_busy(ORDERS)
        assert not first.done
        gate.set()
        receipts = [await pending.wait(TIMEOUT_MS) for pending in (first, *rest)]
        assert log.appended[1:] == [str(number).encode() for number in range(20)]
        assert [receipt.base_offset for receipt in receipts] == list(range(1, 21))
        assert first.base_offset == 1

    run(story)


@pytest.mark.parametrize("error", [BatchTooLarge(2, limit=1), ZeroDivisionError("a mistake")])
def test_one_that_is_refused_does_not_hold_up_the_others(error: Exception) -> None:
    async def story(log: Log) -> None:
        good, bad, behind = log.put(b"a"), log.put(b"b", fails=error), log.put(b"c")
        assert (await behind.wait(TIMEOUT_MS)).base_offset == 1
        with pytest.raises(SteleError):
            bad.result()
        with pytest.raises(SteleError):
            await bad.wait(TIMEOUT_MS)
        assert bad.done
        assert (await good.wait(TIMEOUT_MS)).base_offset == 0

    run(story)


def test_a_produce_that_waits_for_room_continues_when_there_is_some() -> None:
    async def story(log: Log) -> None:
        gate = threading.Event()
        first = log.put(b"a", before=gate.wait)
        assert not log.queue.is_full
        await log.queue.room()
        log.put(b"b")
        assert log.queue.is_full
        waiting = asyncio.create_task(log.queue.room())
        await asyncio.sleep(0)
        assert not waiting.done()
        gate.set()
        await waiting
        assert first.done

    run(story, bytes_max=2000)


def test_its_size_counts_what_waits_and_what_threads_work_on() -> None:
    async def story(log: Log) -> None:
        assert log.queue.size == (0, 0)
        gate = threading.Event()
        batch_bytes = len(batch_of([b"a"]))
        first, second = log.put(b"a", before=gate.wait), log.put(b"b")
        elsewhere = log.put(b"c", name=OTHERS, before=gate.wait)
        assert log.queue.size.requests == 3
        assert log.queue.size.size_bytes > 3 * batch_bytes
        gate.set()
        for pending in (first, second, elsewhere):
            await pending.wait(TIMEOUT_MS)
        assert log.queue.size == (0, 0)

    run(story)


def test_one_that_is_gone_leaves_its_turn_to_the_next() -> None:
    async def story(log: Log) -> None:
        gate = threading.Event()
        log.put(b"a", before=gate.wait)
        log.put(b"b", before=gate.wait)
        assert log.queue.is_full

        async def put_when_there_is_room(value: bytes) -> None:
            await log.queue.room()
            log.put(value)

        waiting = [asyncio.create_task(put_when_there_is_room(b"%d" % number)) for number in range(10)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        waiting[5].cancel()
        gate.set()
        await asyncio.wait(waiting)
        await log.queue.drain()
        assert log.appended == [b"a", b"b", *(b"%d" % number for number in range(10) if number not in (0, 5))]

    run(story, bytes_max=2000)


def test_the_receipt_comes_when_it_is_synced() -> None:
    async def story(log: Log) -> None:
        log.sync = asyncio.get_running_loop().create_future()
        pending = log.put(b"a", acks=Acks.ALL)
        await log.queue.drain()
        assert log.appended == [b"a"]
        assert not pending.done
        with pytest.raises(RequestTimedOut):
            await pending.wait(1)
        log.sync.set_result(None)
        assert (await pending.wait(TIMEOUT_MS)).durability is Durability.SYNCED

    run(story)


def test_a_drain_waits_for_what_was_put_before_it() -> None:
    async def story(log: Log) -> None:
        gate = threading.Event()
        log.put(b"a", before=gate.wait)
        log.put(b"b")
        await log.queue.drain([OTHERS])
        waiting = asyncio.create_task(log.queue.drain([ORDERS]))
        await asyncio.sleep(0)
        assert not waiting.done()
        gate.set()
        await waiting
        assert log.appended == [b"a", b"b"]

    run(story)
