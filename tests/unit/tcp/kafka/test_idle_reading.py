"""A fetch of many partitions whose idle answers are kept gives the same bytes as one that reads them all."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stele.wire import record_batch as rb
from stele.wire.error_codes import ErrorCode
from stele.wire.isolation_level import IsolationLevel
from stele.wire.kafka.fetch import FETCH_API, FetchPartition, FetchRequest, FetchTopic, PartitionData

from app.broker.placement import Placement
from app.broker.producing.produce import Acks
from app.security.acl import Acl, AclFilter, Operation, ResourceType
from app.security.policy import ListenerSecurity
from app.security.principal import ANONYMOUS
from app.storage.engine import PartitionFetch
from app.storage.topic_partition import TopicPartition
from app.storage.transactional_produce import TransactionalProduce
from app.storage.waiters import Waiters
from app.tcp.kafka import connection as kafka_connection
from app.tcp.kafka.context import KafkaListener
from app.tcp.kafka.fetching import idle_reading, looks
from app.tcp.kafka.fetching.idle_reading import IdleReading
from app.tcp.kafka.fetching.looks import Look
from app.tcp.kafka.sessions.idle_answers import IdleAnswers, Room
from app.transactions.messages import ProducerIdentity
from app.work_budget import PARTITIONS_PER_TURN, pause
from tests.support.acls import authorizer_over
from tests.support.charges import noted_charges, set_quotas
from tests.support.fetches import NOW_MS, Append, Fetch, FetchClient, append_to, connected
from tests.support.kafka_application import kafka_listener
from tests.support.kafka_peer import read_response, request_frame

VERSIONS = range(4, 19)
# So many that answers are kept, with one topic in two places where a request begins in its middle.
TOPICS = {"orders": 12, "a-topic-with-a-longer-name": 3, "memory": 5}
CONFIGS = {"memory": {"stele.storage": "memory"}}
NAMES = [(topic, partition) for topic, count in TOPICS.items() for partition in range(count)]
WIDE = idle_reading.PARTITIONS_MIN


@dataclass(frozen=True, slots=True)
class Delete:
    """Move the log start offset to the end."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class Recreate:
    """Delete a topic and create another one with its name."""

    topic: str


@dataclass(frozen=True, slots=True)
class Ask:
    """One request for most partitions, from ``turn`` on: at the end of each, or ``behind`` it by so many records."""

    turn: int
    behind: dict[int, int]
    left_out: frozenset[int]
    repeated: int | None
    version: int
    isolation: int
    bytes_max: int
    partition_bytes: int
    bytes_min: int
    epoch_ahead: int | None
    rack_id: str
    trailing: bytes
    client_id: str | None

    def fetch(self, listener: KafkaListener) -> Fetch:
        order = [number for number in range(len(NAMES)) if number not in self.left_out]
        order = order[self.turn % len(order) :] + order[: self.turn % len(order)]
        if self.repeated is not None:
            order.append(self.repeated)
        named = [
            (*NAMES[number], _end(listener, *NAMES[number]) - self.behind.get(number, 0)) for number in order
        ]
        (topic, partition, offset), *others = named
        return Fetch(
            self.version,
            topic,
            partition,
            offset,
            others=tuple(others),
            isolation=self.isolation,
            bytes_max=self.bytes_max,
            partition_bytes=self.partition_bytes,
            bytes_min=self.bytes_min,
            epoch_ahead=self.epoch_ahead,
            rack_id=self.rack_id,
            trailing=self.trailing,
            client_id=self.client_id,
        )


def _end(listener: KafkaListener, topic: str, partition: int) -> int:
    return listener.broker.log_state(topic, partition).high_watermark


numbers = st.integers(0, len(NAMES) - 1)
appends = st.tuples(st.sampled_from(NAMES), st.integers(1, 3), st.sampled_from([1, 100, 5000])).map(
    lambda given: Append(*given[0], given[1], given[2])
)


def asks(version: int) -> st.SearchStrategy[Ask]:
    return st.builds(
        Ask,
        turn=st.sampled_from([0, 0, 1, 5, 13]),
        behind=st.dictionaries(numbers, st.sampled_from([1, 1, 2, 3, -1]), max_size=3),
        left_out=st.frozensets(numbers, max_size=len(NAMES) - WIDE),
        repeated=st.one_of(st.none(), st.none(), st.none(), numbers),
        version=st.sampled_from([version, version, version, 4, 11, 12, 17]),
        isolation=st.sampled_from([0, 0, 0, 1]),
        bytes_max=st.sampled_from([1 << 20, 1 << 20, 6000, 0]),
        partition_bytes=st.sampled_from([1 << 20, 1 << 20, 1000, 0]),
        bytes_min=st.sampled_from([1, 1, 0, -1, 6000]),
        epoch_ahead=st.sampled_from([None, None, None, 0, 1, -1]),
        rack_id=st.sampled_from(["", "", "rack"]),
        trailing=st.sampled_from([b"", b"", b"", b"\0"]),
        client_id=st.sampled_from(["a", "a", "", None]),
    )


steps_of = st.integers(4, 18).flatmap(
    lambda version: st.lists(
        st.one_of(
            asks(version),
            asks(version),
            st.builds(Ask, turn=numbers, behind=st.just({}), left_out=st.just(frozenset[int]()), repeated=st.none(),
                      version=st.just(version), isolation=st.just(0), bytes_max=st.just(1 << 20),
                      partition_bytes=st.just(1 << 20), bytes_min=st.just(1), epoch_ahead=st.none(),
                      rack_id=st.just(""), trailing=st.just(b""), client_id=st.just("a")),
            appends,
            appends,
            st.sampled_from(NAMES).map(lambda name: Delete(*name)),
            st.builds(Recreate, st.sampled_from([*TOPICS])),
        ),
        min_size=4,
        max_size=25,
    )
)  # fmt: skip


@settings(max_examples=5)
@given(steps=steps_of)
def test_kept_answers_give_the_same_responses(steps: Sequence[Ask | Append | Delete | Recreate]) -> None:
    with tempfile.TemporaryDirectory() as path:
        asyncio.run(_check(Path(path), steps))


async def _check(path: Path, steps: Sequence[Ask | Append | Delete | Recreate]) -> None:
    async with kafka_listener(path) as listener:
        broker, client = listener.broker, FetchClient()
        for name in TOPICS:
            await _create(listener, name)
        async with connected(listener) as ours, connected(listener, is_slow=True) as slow:
            for step in steps:
                if isinstance(step, Append):
                    append_to(listener, step)
                elif isinstance(step, Delete):
                    await broker.delete_records(
                        step.topic, step.partition, _end(listener, step.topic, step.partition)
                    )
                elif isinstance(step, Recreate):
                    await broker.delete_topic(step.topic)
                    await _create(listener, step.topic)
                else:
                    frame = client.frame(listener, step.fetch(listener))
                    assert await ours(frame) == await slow(frame)


async def _create(listener: KafkaListener, name: str) -> None:
    await listener.broker.create_topic(
        name, placement=Placement(partitions=TOPICS[name]), configs=CONFIGS.get(name, {})
    )
    for partition in range(TOPICS[name]):
        append_to(listener, Append(name, partition, 3, 10))


def _at_the_end(listener: KafkaListener, version: int, names: Sequence[tuple[str, int]] = NAMES) -> Fetch:
    (topic, partition, offset), *others = ((*name, _end(listener, *name)) for name in names)
    return Fetch(version, topic, partition, offset, others=tuple(others))


def _answers(response: bytes, version: int) -> dict[tuple[int, int], PartitionData]:
    """Return the answers by the place of their topic in the response, and the partition."""
    _, answer = read_response(response, FETCH_API, version)
    return {
        (place, partition.partition_index): partition
        for place, topic in enumerate(answer.responses)
        for partition in topic.partitions
    }


def _records(partition: PartitionData) -> bytes:
    return bytes(partition.records or b"")


def _refuse_to_read_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("all partitions are read")

    monkeypatch.setattr(IdleReading, "_look_at_all", refuse)


@pytest.mark.every(4)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("isolation", [0, 1])
async def test_only_partitions_with_news_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, isolation: int
) -> None:
    async with kafka_listener(tmp_path) as listener, connected(listener) as send:
        for name in TOPICS:
            await _create(listener, name)
        _refuse_to_read_all(monkeypatch)
        read: list[tuple[str, int]] = []
        fetch_now = listener.broker.fetch_now

        def noted(requests: Sequence[PartitionFetch], **options: Any) -> object:
            read.extend((request.topic, request.partition) for request in requests)
            return fetch_now(requests, **options)

        monkeypatch.setattr(listener.broker, "fetch_now", noted)
        client = FetchClient()
        usual = replace(_at_the_end(listener, version), isolation=isolation)
        await send(client.frame(listener, usual))
        assert read == NAMES
        read.clear()
        await send(client.frame(listener, usual))
        assert not read
        append_to(listener, Append("orders", 7, 2, 100))
        append_to(listener, Append("memory", 4, 1, 5000))
        answers = _answers(await send(client.frame(listener, usual)), version)
        assert read == [("orders", 7), ("memory", 4)]
        assert len(answers) == len(NAMES)
        assert {key for key, one in answers.items() if one.records} == {(0, 7), (2, 4)}
        assert rb.read_header(_records(answers[0, 7])).base_offset == 3
        assert answers[0, 7].high_watermark == 5


async def test_partitions_are_the_same_in_any_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Librdkafka begins with another partition in each request."""
    async with kafka_listener(tmp_path) as listener, connected(listener) as send:
        for name in TOPICS:
            await _create(listener, name)
        _refuse_to_read_all(monkeypatch)
        client = FetchClient()
        await send(client.frame(listener, _at_the_end(listener, 12)))
        monkeypatch.setattr(listener.broker, "fetch_now", None)
        for turn in range(len(NAMES)):
            names = NAMES[turn:] + NAMES[:turn]
            response = await send(client.frame(listener, _at_the_end(listener, 12, names)))
            _, answer = read_response(response, FETCH_API, 12)
            assert names == [
                (topic.topic, partition.partition_index)
                for topic in answer.responses
                for partition in topic.partitions
            ]


@pytest.mark.long
async def test_a_request_of_more_news_than_one_turn_reads_lets_others_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 5 * PARTITIONS_PER_TURN
    async with kafka_listener(tmp_path) as listener, connected(listener) as send:
        await listener.broker.create_topic("wide", placement=Placement(partitions=count))
        names = [("wide", partition) for partition in range(count)]
        fetch = replace(_at_the_end(listener, 12, names), wait_ms=10_000_000)
        for partition in range(count):
            append_to(listener, Append("wide", partition, 1, 3000 if partition % 7 == 0 else 10))
        turns = 0
        is_over = False

        async def count_turns() -> None:
            nonlocal turns
            while not is_over:
                turns += 1
                await pause()

        async with connected(listener, is_slow=True) as slow:
            expected = await slow(FetchClient().frame(listener, fetch))
        counting = asyncio.create_task(count_turns())
        _refuse_to_read_all(monkeypatch)
        response = await send(FetchClient().frame(listener, fetch))
        is_over = True
        await counting
        assert response == expected
        assert turns >= 5


@pytest.mark.every(2)
@pytest.mark.parametrize("bytes_max", [0, 500, 20_000, 70_000])
async def test_the_limit_of_bytes_is_one_of_all_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bytes_max: int
) -> None:
    """Also of partitions that are read in different turns."""
    count = 3 * PARTITIONS_PER_TURN
    async with kafka_listener(tmp_path) as listener:
        await listener.broker.create_topic("wide", placement=Placement(partitions=count))
        names = [("wide", partition) for partition in range(count)]
        fetch = replace(_at_the_end(listener, 12, names), bytes_max=bytes_max)
        for partition in range(count):
            append_to(listener, Append("wide", partition, 1, 1000))
        frame = FetchClient().frame(listener, fetch)
        async with connected(listener, is_slow=True) as slow:
            expected = await slow(frame)
        _refuse_to_read_all(monkeypatch)
        async with connected(listener) as ours:
            response = await ours(frame)
        assert response == expected
        records = [len(_records(one)) for one in _answers(response, 12).values()]
        assert sum(map(bool, records)) == max(1, bytes_max // records[0])


@pytest.mark.every(4)
@pytest.mark.parametrize("offsets", [(0, 1), (1, 0), (0, 3), (3, 0), (3, 2)])
@pytest.mark.parametrize("is_kept", [False, True])
async def test_of_a_partition_that_is_named_twice_the_last_counts(
    tmp_path: Path, offsets: tuple[int, int], is_kept: bool
) -> None:
    async with kafka_listener(tmp_path) as listener:
        for name in TOPICS:
            await _create(listener, name)
        client = FetchClient()
        fetch = _at_the_end(listener, 12)
        twice = replace(fetch, offset=offsets[0], others=(*fetch.others, (*NAMES[0], offsets[1])))
        async with connected(listener, is_slow=True) as slow, connected(listener) as ours:
            if is_kept:
                await ours(client.frame(listener, fetch))
            frame = client.frame(listener, twice)
            assert await ours(frame) == await slow(frame)


@pytest.mark.parametrize("version", [4, 12, 17])
@pytest.mark.parametrize("order", [[0, 1], [0, 2, 1], [2, 1, 0, 0]])
async def test_a_topic_that_stands_side_by_side_with_itself_is_one_in_the_response(
    tmp_path: Path, version: int, order: list[int]
) -> None:
    """No client is known to send this."""
    async with kafka_listener(tmp_path) as listener:
        await listener.broker.create_topic("wide", placement=Placement(partitions=40))
        await _create(listener, "orders")
        ids = {name: listener.broker.topic(name).topic_id.bytes for name in ("wide", "orders")}
        append_to(listener, Append("wide", 25, 1, 10))
        topics = [
            FetchTopic(
                topic=name,
                topic_id=ids[name],
                partitions=[
                    FetchPartition(
                        partition=number, fetch_offset=3 * (name == "orders"), partition_max_bytes=1000
                    )
                    for number in numbers
                ],
            )
            for name, numbers in (("wide", range(20)), ("wide", range(20, 40)), ("orders", range(12)))
        ]
        request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[topics[number] for number in order])
        frame = request_frame(request, version)
        async with connected(listener) as ours, connected(listener, is_slow=True) as slow:
            for _ in range(2):
                assert await ours(frame) == await slow(frame)


async def test_nothing_is_missed_that_is_appended_during_a_read_that_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with kafka_listener(tmp_path) as listener, connected(listener) as send:
        for name in TOPICS:
            await _create(listener, name)
        usual = _at_the_end(listener, 12)
        read = listener.broker.read

        async def read_before_an_append(*given: Any, **options: Any) -> object:
            reads = await read(*given, **options)
            if len(reads) == len(NAMES):
                append_to(listener, Append(*NAMES[3], 1, 10))
            return reads

        monkeypatch.setattr(listener.broker, "fetch_now", mock.Mock(return_value=None))
        monkeypatch.setattr(listener.broker, "read", read_before_an_append)
        client = FetchClient()
        first = await send(client.frame(listener, usual))
        assert not any(one.records for one in _answers(first, 12).values())
        second = await send(client.frame(listener, usual))
        assert [key for key, one in _answers(second, 12).items() if one.records] == [(0, 3)]


async def test_a_transaction_is_shown_when_it_has_ended(tmp_path: Path) -> None:
    async with kafka_listener(tmp_path) as listener, AsyncExitStack() as stack:
        for name in TOPICS:
            await _create(listener, name)
        # A connection of its own for each isolation level, which keeps the answers of one.
        clients = [
            (
                await stack.enter_async_context(connected(listener)),
                FetchClient().frame(listener, replace(_at_the_end(listener, 12), isolation=isolation)),
            )
            for isolation in (0, 1)
        ]
        slow = await stack.enter_async_context(connected(listener, is_slow=True))

        async def ends() -> list[tuple[int, int, bool]]:
            """Return the ends of one partition and whether it has records, by isolation level."""
            answers: list[PartitionData] = []
            for ours, frame in clients:
                response = await ours(frame)
                assert response == await slow(frame)
                answers.append(_answers(response, 12)[0, 2])
            return [(one.high_watermark, one.last_stable_offset, bool(one.records)) for one in answers]

        assert await ends() == [(3, 3, False), (3, 3, False)]
        transactions = listener.transactions
        producer = await transactions.init_producer_id("t", timeout_ms=600_000)
        _append_in_transaction(listener, producer, 0)
        assert await ends() == [(4, 3, True), (4, 3, False)]
        assert await ends() == [(4, 3, True), (4, 3, False)]
        await transactions.end("t", producer, commit=True, bumps_epoch=False)
        assert await ends() == [(5, 5, True), (5, 5, True)]


async def test_an_open_transaction_ends_no_wait_and_its_end_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[IdleReading] = []
    look = IdleReading.look

    async def counted(self: IdleReading) -> Look:
        looked.append(self)
        return await look(self)

    monkeypatch.setattr(IdleReading, "look", counted)
    async with kafka_listener(tmp_path) as listener, connected(listener) as send:
        for name in TOPICS:
            await _create(listener, name)
        transactions = listener.transactions
        producer = await transactions.init_producer_id("t", timeout_ms=600_000)
        usual = _at_the_end(listener, 12)
        fetch = replace(usual, isolation=1, bytes_min=1000, wait_ms=10_000_000)
        waiting = asyncio.create_task(send(FetchClient().frame(listener, fetch)))
        while not listener.broker._engine.waiters.waited():
            await pause()
        for number in range(20):
            _append_in_transaction(listener, producer, number)
            await pause()
        assert len(looked) == 1
        await transactions.end("t", producer, commit=True, bumps_epoch=False)
        answers = _answers(await waiting, 12)
        assert [key for key, one in answers.items() if one.records] == [(0, 2)]


def _append_in_transaction(listener: KafkaListener, producer: ProducerIdentity, sequence: int) -> None:
    batch = rb.build_rows(
        [(NOW_MS, None, b"v", [])],
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=sequence,
        is_transactional=True,
    )
    transaction = TransactionalProduce(transactional_id="t", adds_partitions=True)
    listener.broker.produce("orders", 2, bytearray(batch), acks=Acks.LEADER, transaction=transaction)


@pytest.mark.parametrize("version", [12, 13, 18])
async def test_a_topic_that_is_deleted_meanwhile_is_unknown(tmp_path: Path, version: int) -> None:
    responses: list[bytes] = []
    for is_slow in (False, True):
        async with kafka_listener(tmp_path / str(is_slow)) as listener:
            for name in TOPICS:
                await _create(listener, name)
            async with connected(listener, is_slow=is_slow) as send:
                fetch = replace(_at_the_end(listener, version), wait_ms=10_000_000)
                waiting = asyncio.create_task(send(FetchClient().frame(listener, fetch)))
                while not listener.broker._engine.waiters.waited():
                    await pause()
                ids = [listener.broker.topic(name).topic_id.bytes for name in TOPICS]
                await listener.broker.delete_topic("orders")
                response = await waiting
        codes = [one.error_code for one in _answers(response, version).values()]
        assert codes.count(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) == TOPICS["orders"]
        for number, topic_id in enumerate(ids):
            response = response.replace(topic_id, bytes((number,)) * 16)
        responses.append(response)
    assert responses[0] == responses[1]


async def test_a_request_ends_with_its_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that is among its partitions when the connection breaks."""
    count, looked = PARTITIONS_PER_TURN + 10, 0
    opened: list[kafka_connection.KafkaConnection] = []
    look, connection_made = IdleReading.look, kafka_connection.KafkaConnection.connection_made

    async def counted(self: IdleReading) -> Look:
        nonlocal looked
        looked += 1
        return await look(self)

    def made(self: kafka_connection.KafkaConnection, transport: asyncio.BaseTransport) -> None:
        opened.append(self)
        connection_made(self, transport)

    async def break_off() -> None:
        opened[-1].connection_lost(None)

    monkeypatch.setattr(IdleReading, "look", counted)
    monkeypatch.setattr(kafka_connection.KafkaConnection, "connection_made", made)
    async with kafka_listener(tmp_path) as listener, connected(listener) as send:
        await listener.broker.create_topic("wide", placement=Placement(partitions=count))
        names = [("wide", partition) for partition in range(count)]
        fetch = replace(_at_the_end(listener, 12, names), wait_ms=5000)
        monkeypatch.setattr(looks, "pause", break_off)
        waiting = asyncio.create_task(send(FetchClient().frame(listener, fetch)))
        while not looked:
            await pause()
        for _ in range(20):
            await pause()
        assert looked == 1
        assert listener.idle_answers == Room()
        opened[-1].abort()
        await asyncio.wait((waiting,))


async def test_requests_at_the_same_time_keep_no_more_than_there_is_room_for(tmp_path: Path) -> None:
    count, clients = 4 * PARTITIONS_PER_TURN, 6
    async with kafka_listener(tmp_path) as plain, AsyncExitStack() as stack:
        listener = replace(plain, idle_answers=Room(3 * count))
        await listener.broker.create_topic("wide", placement=Placement(partitions=count))
        names = [("wide", partition) for partition in range(count)]
        frame = FetchClient().frame(listener, _at_the_end(listener, 12, names))
        sends = [await stack.enter_async_context(connected(listener)) for _ in range(clients)]
        responses = await asyncio.gather(*(send(frame) for send in sends))
        assert len(set(responses)) == 1
        assert 0 <= listener.idle_answers.left <= PARTITIONS_PER_TURN


def test_nothing_is_kept_for_topics_of_which_there_is_no_answer() -> None:
    room = Room()
    answers = IdleAnswers(room, Waiters().watch)
    answers.begin(12, IsolationLevel.READ_UNCOMMITTED)
    assert not answers.of("unknown").by_entry
    answers.keep(TopicPartition("orders", 1), b"entry", b"answer")
    assert answers.of("orders").by_entry == {b"entry": b"answer"}
    answers.begin(13, IsolationLevel.READ_UNCOMMITTED)
    assert not answers._by_topic
    assert room == Room()


async def test_answers_are_kept_for_as_many_partitions_as_there_is_room_for(tmp_path: Path) -> None:
    async with kafka_listener(tmp_path) as plain:
        listener = replace(plain, idle_answers=Room(len(NAMES) + 3))
        for name in TOPICS:
            await _create(listener, name)
        frame = FetchClient().frame(listener, _at_the_end(listener, 12))
        async with connected(listener, is_slow=True) as slow:
            expected = await slow(frame)
        async with connected(listener) as first:
            assert await first(frame) == expected
            assert listener.idle_answers.left == 3
            async with connected(listener) as second:
                assert await second(frame) == expected
                assert listener.idle_answers.left == 3
        while listener.idle_answers.left < len(NAMES) + 3:
            await pause()
        async with connected(listener) as third:
            assert await third(frame) == expected
            assert listener.idle_answers.left == 3


async def test_the_answers_of_another_version_take_the_place_of_those_before(tmp_path: Path) -> None:
    async with kafka_listener(tmp_path) as listener, connected(listener) as send:
        for name in TOPICS:
            await _create(listener, name)
        before = listener.idle_answers.left
        for version in (12, 4, 12):
            await send(FetchClient().frame(listener, _at_the_end(listener, version)))
            assert listener.idle_answers.left == before - len(NAMES)


async def test_a_partition_that_is_read_no_more_is_forgotten_when_it_changes(tmp_path: Path) -> None:
    async with kafka_listener(tmp_path) as listener, connected(listener) as send:
        for name in TOPICS:
            await _create(listener, name)
        client, before = FetchClient(), listener.idle_answers.left
        await send(client.frame(listener, _at_the_end(listener, 12)))
        append_to(listener, Append(*NAMES[-1], 1, 10))
        await send(client.frame(listener, _at_the_end(listener, 12, NAMES[:-1])))
        assert listener.idle_answers.left == before - len(NAMES) + 1
        append_to(listener, Append(*NAMES[-1], 1, 10))
        watched = listener.broker._engine.waiters.waited()
        assert set(watched) == set(NAMES[:-1])


async def test_a_second_request_does_not_disturb_one_that_waits(tmp_path: Path) -> None:
    async with kafka_listener(tmp_path) as listener, connected(listener) as send:
        for name in TOPICS:
            await _create(listener, name)
        client = FetchClient()
        usual = replace(_at_the_end(listener, 12), wait_ms=10_000_000)
        frames = client.frame(listener, usual) + client.frame(listener, usual)
        waiting = asyncio.create_task(send(frames))
        while len(listener.broker._engine.waiters._by_partition.get(TopicPartition(*NAMES[0]), ())) < 2:
            await pause()
        append_to(listener, Append(*NAMES[3], 1, 10))
        answers = _answers(await waiting, 12)
        assert [key for key, one in answers.items() if one.records] == [(0, 3)]


@pytest.mark.parametrize("quotas", [{"consumer_byte_rate": 1}, {"consumer_byte_rate": 1e12}])
async def test_records_are_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quotas: dict[str, float]
) -> None:
    async with kafka_listener(tmp_path) as listener, connected(listener) as send:
        for name in TOPICS:
            await _create(listener, name)
        usual = _at_the_end(listener, 12)
        append_to(listener, Append(*NAMES[3], 1, 1000))
        await set_quotas(listener.broker.quotas, quotas)
        before = listener.broker.counts.fetched_bytes
        with noted_charges(listener.broker.quotas) as charges:
            _refuse_to_read_all(monkeypatch)
            response = await send(FetchClient().frame(listener, usual))
        (partition,) = (one for one in _answers(response, 12).values() if one.records)
        size = len(_records(partition))
        assert [amount for _, _, _, amount in charges.noted] == [size]
        assert listener.broker.counts.fetched_bytes == before + size
        throttle_ms = int.from_bytes(response[5:9])
        assert throttle_ms == ((size - 10) * 1000 if quotas["consumer_byte_rate"] == 1 else 0)


async def test_a_right_that_is_revoked_is_missed_by_the_next_request(tmp_path: Path) -> None:
    rights = [
        Acl(
            resource_type=ResourceType.TOPIC,
            resource_name=name,
            principal=str(ANONYMOUS),
            operation=Operation.READ,
        )
        for name in TOPICS
    ]
    authorizer = await authorizer_over(rights)
    async with kafka_listener(tmp_path) as plain:
        listener = replace(plain, security=ListenerSecurity(listener="kafka", authorizer=authorizer))
        for name in TOPICS:
            await _create(listener, name)
        async with connected(listener) as send:
            frame = FetchClient().frame(listener, _at_the_end(listener, 12))
            for _ in range(2):
                assert not any(one.error_code for one in _answers(await send(frame), 12).values())
            await authorizer.acls.remove(AclFilter(resource_name="orders"))
            codes = [one.error_code for one in _answers(await send(frame), 12).values()]
            assert codes.count(ErrorCode.TOPIC_AUTHORIZATION_FAILED) == TOPICS["orders"]
