"""What ends the wait of a fetch, and what it is answered then, whether its reads wait or not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import pytest
from stele.wire import record_batch as rb
from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.fetch import FETCH_API, FetchResponse, PartitionData

from app.broker.placement import Placement
from app.security.acl import Acl, AclFilter, Operation, ResourceType
from app.security.policy import ListenerSecurity
from app.security.principal import ANONYMOUS
from app.storage.topic_partition import TopicPartition
from app.tcp.kafka.context import KafkaListener
from app.tcp.kafka.sessions.idle_answers import Room
from app.work_budget import at_once, pause
from tests.support.acls import authorizer_over
from tests.support.charges import noted_charges, set_quotas
from tests.support.fetches import Append, Fetch, FetchClient, Send, append_to, connected
from tests.support.kafka_application import kafka_listener
from tests.support.kafka_peer import read_response

VERSION = 12
LONG_MS = 10_000_000
ORDERS = TopicPartition("orders", 0)
FIRST = Append("orders", 0, 1, 100)
# Of a fetch of several partitions, in their order; the first of them stands before the one that gets records.
OTHERS = (TopicPartition("payments", 0), TopicPartition("orders", 1), TopicPartition("users", 0))
MANY = tuple(TopicPartition("many", partition) for partition in range(20))

Kind = Literal["alone", "in a session", "with others", "with many others"]

pytestmark = pytest.mark.parametrize("is_slow", [False, True])
every_kind = pytest.mark.parametrize("kind", ["alone", "in a session", "with others", "with many others"])
with_others = pytest.mark.parametrize("kind", ["with others", "with many others"])


@dataclass(slots=True)
class _Consumer:
    """A client of one partition that has read all there is."""

    listener: KafkaListener
    send: Send
    client: FetchClient
    kind: Kind

    @property
    def at_the_end(self) -> Fetch:
        session = "next" if self.kind == "in a session" else "none"
        (topic, partition, offset), *others = map(self._at_the_end, self.names)
        return Fetch(
            VERSION, topic, partition, offset, session=session, wait_ms=LONG_MS, others=tuple(others)
        )

    @property
    def names(self) -> list[TopicPartition]:
        """The partitions of a request without a session, in their order."""
        if self.kind in ("alone", "in a session"):
            return [ORDERS]
        several = [OTHERS[0], ORDERS, *OTHERS[1:]]
        return several if self.kind == "with others" else [*several, *MANY]

    def _at_the_end(self, name: TopicPartition) -> tuple[str, int, int]:
        return (name.topic, name.partition, self.listener.broker.log_state(*name).high_watermark)

    async def fetch(self, fetch: Fetch) -> FetchResponse:
        frame = self.client.frame(self.listener, fetch)
        response = await self.send(frame)
        self.client.note(fetch, response)
        return read_response(response, FETCH_API, VERSION)[1]

    async def begin(self, fetch: Fetch) -> asyncio.Task[FetchResponse]:
        """Send ``fetch``, and return when it waits."""
        task = asyncio.create_task(self.fetch(fetch))
        await _until(lambda: self.waiting == 1)
        return task

    @property
    def waiting(self) -> int:
        """How many requests wait for the partition."""
        waiters = self.listener.broker._engine.waiters._by_partition.get(ORDERS, ())
        wakeups = [getattr(one, "wakeup", None) or getattr(one, "_wakeup", None) for one in waiters]
        return sum(wakeup is not None and not wakeup.done() for wakeup in wakeups)


async def _until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await pause()


@asynccontextmanager
async def _consumer(listener: KafkaListener, *, kind: Kind, is_slow: bool) -> AsyncGenerator[_Consumer]:
    await listener.broker.create_topic("orders", placement=Placement(partitions=2))
    for name in ("payments", "users"):
        await listener.broker.create_topic(name, placement=Placement(partitions=1))
    await listener.broker.create_topic("many", placement=Placement(partitions=len(MANY)))
    append_to(listener, FIRST)
    async with connected(listener, is_slow=is_slow) as send:
        consumer = _Consumer(listener, send, FetchClient(), kind)
        session = "begin" if kind == "in a session" else "none"
        await consumer.fetch(Fetch(VERSION, "orders", 0, 0, session=session))
        yield consumer


def _partition(response: FetchResponse) -> PartitionData:
    """Return the answer for the partition that gets records."""
    return _answers(response)[ORDERS]


def _answers(response: FetchResponse) -> dict[TopicPartition, PartitionData]:
    """Return the answers in their order."""
    return {
        TopicPartition(topic.topic, partition.partition_index): partition
        for topic in response.responses
        for partition in topic.partitions
    }


def _bytes(partition: PartitionData) -> bytes:
    return bytes(partition.records or b"")


def _records(partition: PartitionData) -> int:
    records, count, position = _bytes(partition), 0, 0
    while position < len(records):
        header = rb.check_batch(records, position)
        count, position = count + header.record_count, position + header.size
    return count


@pytest.mark.every(4)
@pytest.mark.parametrize("quotas", [{}, {"consumer_byte_rate": 1e12}, {"request_percentage": 1e6}])
@every_kind
async def test_an_append_ends_the_wait(
    tmp_path: Path,
    kind: Kind,
    is_slow: bool,
    quotas: dict[str, float],
) -> None:
    async with (
        kafka_listener(tmp_path) as listener,
        _consumer(listener, kind=kind, is_slow=is_slow) as consumer,
    ):
        await set_quotas(listener.broker.quotas, quotas)
        before = listener.broker.counts.fetched_bytes
        size = 0
        with noted_charges(listener.broker.quotas) as charges:
            for number in range(1, 4):
                fetch = consumer.at_the_end
                waiting = await consumer.begin(fetch)
                append_to(listener, FIRST)
                partition = _partition(await waiting)
                assert partition.error_code == ErrorCode.NONE
                assert rb.read_header(_bytes(partition)).base_offset == number
                assert partition.high_watermark == number + 1
                size += len(_bytes(partition))
        assert listener.broker.counts.fetched_bytes == before + size
        if "consumer_byte_rate" in quotas:
            assert sum(amount for _, _, _, amount in charges.noted) == size


@pytest.mark.every(4)
@every_kind
async def test_too_little_does_not_end_the_wait(tmp_path: Path, kind: Kind, is_slow: bool) -> None:
    async with (
        kafka_listener(tmp_path) as listener,
        _consumer(listener, kind=kind, is_slow=is_slow) as consumer,
    ):
        waiting = await consumer.begin(replace(consumer.at_the_end, bytes_min=1000))
        for _ in range(2):
            append_to(listener, FIRST)
            await pause()
            assert consumer.waiting == 1
        listener.broker._engine.waiters.wake(ORDERS)
        await _until(lambda: consumer.waiting == 0)
        await _until(lambda: consumer.waiting == 1)
        append_to(listener, Append("orders", 0, 1, 1000))
        assert _records(_partition(await waiting)) == 3


@pytest.mark.every(4)
@every_kind
async def test_the_deletion_of_the_topic_ends_the_wait(tmp_path: Path, kind: Kind, is_slow: bool) -> None:
    async with (
        kafka_listener(tmp_path) as listener,
        _consumer(listener, kind=kind, is_slow=is_slow) as consumer,
    ):
        waiting = await consumer.begin(consumer.at_the_end)
        await listener.broker.delete_topic("orders")
        response = await waiting
        assert _partition(response).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if kind in ("with others", "with many others"):
            assert list(_answers(response)) == consumer.names
            assert not _answers(response)[OTHERS[0]].error_code


@every_kind
async def test_a_fetch_out_of_time_is_answered_without_records(
    tmp_path: Path, kind: Kind, is_slow: bool
) -> None:
    async with (
        kafka_listener(tmp_path) as listener,
        _consumer(listener, kind=kind, is_slow=is_slow) as consumer,
    ):
        if kind == "in a session":
            # The answer to the first says what a session without news need not say again.
            await consumer.fetch(replace(consumer.at_the_end, wait_ms=1))
        response = await consumer.fetch(replace(consumer.at_the_end, wait_ms=20))
        assert response.error_code == ErrorCode.NONE
        if kind == "in a session":
            assert not response.responses
        else:
            assert not _partition(response).records
            assert _partition(response).high_watermark == 1


@pytest.mark.every(4)
@every_kind
async def test_little_is_returned_when_the_time_is_up(tmp_path: Path, kind: Kind, is_slow: bool) -> None:
    async with (
        kafka_listener(tmp_path) as listener,
        _consumer(listener, kind=kind, is_slow=is_slow) as consumer,
    ):
        fetch = consumer.at_the_end
        little = replace(fetch, topic="orders", partition=0, offset=0, others=fetch.others[1:])
        response = await consumer.fetch(replace(little, bytes_min=1000, wait_ms=20))
        assert _records(_partition(response)) == 1


@pytest.mark.every(4)
@every_kind
async def test_the_close_of_the_broker_ends_the_wait(tmp_path: Path, kind: Kind, is_slow: bool) -> None:
    async with (
        kafka_listener(tmp_path) as listener,
        _consumer(listener, kind=kind, is_slow=is_slow) as consumer,
    ):
        waiting = await consumer.begin(consumer.at_the_end)
        listener.broker.begin_close()
        response = await waiting
        assert response.error_code == ErrorCode.NONE
        assert not any(partition.records for topic in response.responses for partition in topic.partitions)


@pytest.mark.long
@every_kind
async def test_nothing_waits_for_a_closed_connection(tmp_path: Path, kind: Kind, is_slow: bool) -> None:
    async with kafka_listener(tmp_path) as listener, AsyncExitStack() as stack:
        consumer = await stack.enter_async_context(_consumer(listener, kind=kind, is_slow=is_slow))
        waiting = await consumer.begin(consumer.at_the_end)
        await stack.aclose()
        await _until(lambda: not consumer.waiting)
        assert listener.idle_answers == Room()
        append_to(listener, FIRST)
        waiting.cancel()


@pytest.mark.every(4)
@every_kind
async def test_a_right_that_is_revoked_during_the_wait_is_missed_at_its_end(
    tmp_path: Path, kind: Kind, is_slow: bool
) -> None:
    authorizer = await authorizer_over([_read(name) for name in ("orders", "payments", "users", "many")])
    async with kafka_listener(tmp_path) as plain:
        listener = replace(plain, security=ListenerSecurity(listener="kafka", authorizer=authorizer))
        async with _consumer(listener, kind=kind, is_slow=is_slow) as consumer:
            waiting = await consumer.begin(consumer.at_the_end)
            await authorizer.acls.remove(AclFilter(resource_name="orders"))
            append_to(listener, FIRST)
            response = await waiting
            partition = _partition(response)
            assert partition.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            assert not partition.records
            if kind in ("with others", "with many others"):
                assert list(_answers(response)) == consumer.names
                assert not _answers(response)[OTHERS[0]].error_code


async def test_a_session_tells_when_a_right_is_back_that_was_missed_after_a_wait(
    tmp_path: Path, is_slow: bool
) -> None:
    authorizer = await authorizer_over([_read("orders")])
    async with kafka_listener(tmp_path) as plain:
        listener = replace(plain, security=ListenerSecurity(listener="kafka", authorizer=authorizer))
        async with _consumer(listener, kind="in a session", is_slow=is_slow) as consumer:
            waiting = await consumer.begin(consumer.at_the_end)
            await authorizer.acls.remove(AclFilter(resource_name="orders"))
            append_to(listener, FIRST)
            assert _partition(await waiting).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            await authorizer.acls.add([_read("orders")])
            told = await consumer.fetch(replace(consumer.at_the_end, wait_ms=0))
            assert _partition(told).error_code == ErrorCode.NONE
            assert not (await consumer.fetch(replace(consumer.at_the_end, wait_ms=0))).responses


def _read(topic: str) -> Acl:
    return Acl(
        resource_type=ResourceType.TOPIC,
        resource_name=topic,
        principal=str(ANONYMOUS),
        operation=Operation.READ,
    )


@pytest.mark.every(4)
@pytest.mark.parametrize("number", range(len(OTHERS)))
@with_others
async def test_an_append_to_any_of_several_partitions_ends_the_wait(
    tmp_path: Path, kind: Kind, number: int, is_slow: bool
) -> None:
    async with (
        kafka_listener(tmp_path) as listener,
        _consumer(listener, kind=kind, is_slow=is_slow) as consumer,
    ):
        await consumer.fetch(replace(consumer.at_the_end, wait_ms=1))
        waiting = await consumer.begin(consumer.at_the_end)
        append_to(listener, Append(*OTHERS[number], 2, 100))
        answers = _answers(await waiting)
        assert {name: _records(answer) for name, answer in answers.items() if answer.records} == {
            OTHERS[number]: 2
        }


@with_others
async def test_the_bytes_of_several_partitions_end_the_wait_together(
    tmp_path: Path, kind: Kind, is_slow: bool
) -> None:
    async with (
        kafka_listener(tmp_path) as listener,
        _consumer(listener, kind=kind, is_slow=is_slow) as consumer,
    ):
        waiting = await consumer.begin(replace(consumer.at_the_end, bytes_min=700))
        for name in (ORDERS, OTHERS[0]):
            append_to(listener, Append(*name, 1, 200))
            await pause()
            assert consumer.waiting == 1
        append_to(listener, Append(*OTHERS[2], 1, 200))
        assert [_records(answer) for answer in _answers(await waiting).values()][:4] == [1, 1, 0, 1]


@pytest.mark.every(4)
@every_kind
async def test_the_next_request_of_a_session_ends_the_wait_of_the_one_before(
    tmp_path: Path, kind: Kind, is_slow: bool
) -> None:
    async with (
        kafka_listener(tmp_path) as listener,
        _consumer(listener, kind=kind, is_slow=is_slow) as consumer,
        connected(listener, is_slow=is_slow) as send,
    ):
        fetch = consumer.at_the_end
        waiting = await consumer.begin(fetch)
        again = _Consumer(listener, send, replace(consumer.client), kind)
        if kind == "in a session":
            again.client.epoch += 1
        replacement = asyncio.create_task(again.fetch(fetch))
        if kind == "in a session":
            assert (await waiting).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        await _until(lambda: consumer.waiting == (1 if kind == "in a session" else 2))
        append_to(listener, FIRST)
        assert _records(_partition(await replacement)) == 1
        if kind != "in a session":
            assert _records(_partition(await waiting)) == 1


async def test_records_that_come_with_the_next_request_of_a_session_are_left_to_it(
    tmp_path: Path, is_slow: bool
) -> None:
    async with (
        kafka_listener(tmp_path) as listener,
        _consumer(listener, kind="in a session", is_slow=is_slow) as consumer,
    ):
        waiting = await consumer.begin(consumer.at_the_end)
        at_once(
            listener.fetch_sessions.take(
                session_id=consumer.client.session_id,
                epoch=consumer.client.epoch + 1,
                uses_topic_ids=False,
                requested={},
                forgotten=(),
                now_ms=0,
            )
        )
        append_to(listener, FIRST)
        response = await waiting
        assert response.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        assert not response.responses


@pytest.mark.every(4)
@every_kind
async def test_requests_that_follow_a_waiting_one_begin(tmp_path: Path, kind: Kind, is_slow: bool) -> None:
    """Their responses keep the order."""
    async with (
        kafka_listener(tmp_path) as listener,
        _consumer(listener, kind=kind, is_slow=is_slow) as consumer,
    ):
        first, second = consumer.at_the_end, Fetch(VERSION, "orders", 0, 0)
        frames = consumer.client.frame(listener, first) + consumer.client.frame(listener, second)
        before = listener.broker.counts.fetched_bytes
        sending = asyncio.create_task(consumer.send(frames))
        await _until(lambda: listener.broker.counts.fetched_bytes > before)
        assert consumer.waiting == 1
        append_to(listener, FIRST)
        assert _partition(read_response(await sending, FETCH_API, VERSION)[1]).high_watermark == 2
