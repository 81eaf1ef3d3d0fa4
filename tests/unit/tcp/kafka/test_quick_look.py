"""A fetch that is answered at once gives the same bytes and the same sessions as one whose reads wait."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stele.wire import record_batch as rb
from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.fetch import FETCH_API
from stele.wire.kafka.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from stele.wire.kafka.transactions import INIT_PRODUCER_ID_API as INIT_PRODUCER_ID
from stele.wire.kafka.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
)

from app.broker.placement import Placement
from app.clock import SystemClock
from app.security.acl import Acl, AclFilter, Operation, ResourceType
from app.security.policy import ListenerSecurity
from app.security.principal import ANONYMOUS
from app.tcp.kafka.context import KafkaListener
from app.tcp.kafka.handlers import fetch as fetch_handler
from app.tcp.kafka.sessions.fetch_sessions import FetchSessionCache
from app.work_budget import at_once
from tests.support.acls import authorizer_over
from tests.support.charges import Charge, noted_charges, set_quotas
from tests.support.fetches import NOW_MS, Append, Fetch, FetchClient, append_to, connected
from tests.support.kafka_application import kafka_listener
from tests.support.kafka_peer import read_response, request_frame

TOPICS = {"orders": 2, "a-topic-with-a-longer-name": 1, "aborted": 1, "memory": 1}
CONFIGS = {"memory": {"stele.storage": "memory"}}
NOT_CREATED = "missing"
LENGTH = 40


@dataclass(frozen=True, slots=True)
class Delete:
    """Move the log start offset."""

    topic: str
    partition: int
    before: int


# Also the same partition twice, and a topic in two places.
others = st.one_of(
    st.just(()),
    st.lists(
        st.tuples(
            st.sampled_from(["orders", *TOPICS, *TOPICS, NOT_CREATED]),
            st.sampled_from([0, 0, 0, 0, 0, 1, 5]),
            st.integers(0, LENGTH + 1),
        ),
        max_size=5,
        unique_by=lambda named: named[:2],
    ).map(tuple),
    st.just((("orders", 1, 0), ("a-topic-with-a-longer-name", 0, LENGTH // 2), ("memory", 0, 3))),
)


def fetches(versions: st.SearchStrategy[int]) -> st.SearchStrategy[Fetch]:
    return st.builds(
        Fetch,
        version=versions,
        topic=st.sampled_from(["orders", "orders", *TOPICS, NOT_CREATED]),
        partition=st.sampled_from([0, 0, 0, 0, 1, 5, -1]),
        offset=st.one_of(st.integers(0, LENGTH), st.integers(-1, LENGTH + 5)),
        session=st.sampled_from(["none", "none", "begin", "next", "next", "next", "next", "stale", "unknown", "end"]),
        all_partitions=st.sampled_from([False, False, False, True]),
        forgets=st.sampled_from([False, False, False, False, True]),
        partition_bytes=st.sampled_from([1 << 20, 1 << 20, 500, 0, -1]),
        bytes_max=st.sampled_from([1 << 20, 1 << 20, 300, 0, -1]),
        bytes_min=st.sampled_from([1, 1, 1, 0, -1, 200, 1 << 20]),
        wait_ms=st.sampled_from([0, 0, 1, -1]),
        isolation=st.sampled_from([0, 0, 1, 1, 7]),
        epoch_ahead=st.sampled_from([None, None, 0, 0, 1, -1]),
        client_id=st.sampled_from(["a", "a", "another client", "", None]),
        rack_id=st.sampled_from(["", "", "rack"]),
        trailing=st.sampled_from([b"", b"", b"", b"", b"\0"]),
        others=others,
    )  # fmt: skip


@st.composite
def several(draw: st.DrawFn, version: int) -> Fetch:
    """Return what a client without sessions sends: mostly the same partitions, in the order of its turns."""
    offsets = draw(st.tuples(*[st.integers(0, 30)] * 4))
    named = [("orders", 0), ("orders", 1), ("memory", 0), ("aborted", 0)][
        : draw(st.sampled_from([2, 3, 3, 4]))
    ]
    turn = draw(st.integers(0, 1))
    (topic, partition, offset), *others = (
        (*one, offset) for one, offset in zip(named[turn:] + named[:turn], offsets, strict=False)
    )
    return Fetch(
        version,
        topic,
        partition,
        offset,
        others=tuple(others),
        bytes_max=draw(st.sampled_from([1 << 20, 1 << 20, 5000, 300, 0])),
        partition_bytes=draw(st.sampled_from([1 << 20, 1 << 20, 1000])),
        isolation=draw(st.sampled_from([0, 0, 1])),
        bytes_min=draw(st.sampled_from([1, 1, 200])),
        wait_ms=draw(st.sampled_from([0, 0, 1])),
    )


changes = st.one_of(
    st.builds(
        Append,
        topic=st.sampled_from(list(TOPICS)),
        partition=st.just(0),
        count=st.integers(1, 4),
        size=st.sampled_from([1, 100, 5000]),
    ),
    st.builds(
        Append, topic=st.just("orders"), partition=st.just(1), count=st.integers(1, 4), size=st.just(100)
    ),
    st.builds(
        Delete, topic=st.sampled_from(list(TOPICS)), partition=st.just(0), before=st.integers(0, LENGTH)
    ),
)
# Most clients speak one version and read on; the others are there, too.
histories = st.integers(3, 18).flatmap(
    lambda version: st.lists(
        st.one_of(
            fetches(st.just(version)),
            st.builds(
                Fetch,
                version=st.just(version),
                topic=st.just("orders"),
                partition=st.just(0),
                offset=st.integers(0, LENGTH),
                session=st.sampled_from(["next", "next", "begin", "none"]),
            ),
            several(version),
            several(version),
            fetches(st.integers(3, 18)),
            changes,
        ),
        min_size=1,
        max_size=25,
    )
)

# Some are exceeded by most histories, some by none.
quotas_set = st.sampled_from(
    [
        {},
        {},
        {"consumer_byte_rate": 20},
        {"consumer_byte_rate": 2000, "request_percentage": 1},
        {"consumer_byte_rate": 1e12},
        {"producer_byte_rate": 1},
    ]
)


async def _fill(listener: KafkaListener) -> None:
    """Make the topics, with batches of several sizes, and in one of them aborted and open transactions."""
    broker = listener.broker
    for name, partitions in TOPICS.items():
        await broker.create_topic(
            name, placement=Placement(partitions=partitions), configs=CONFIGS.get(name, {})
        )
        for number in range(15 if name != "aborted" else 0):
            for partition in range(partitions):
                append_to(listener, Append(name, partition, 1 + number % 4, (10, 700, 4000)[number % 3]))
    async with connected(listener) as send:
        version = INIT_PRODUCER_ID.versions[1]
        init = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=600_000)
        _, producer = read_response(await send(request_frame(init, version)), INIT_PRODUCER_ID, version)
        sequence = 0
        for ending in (True, False, None):
            append_to(listener, Append("aborted", 0, 2, 50))
            await send(
                request_frame(
                    AddPartitionsToTxnRequest(
                        v3_and_below_transactional_id="t",
                        v3_and_below_producer_id=producer.producer_id,
                        v3_and_below_producer_epoch=producer.producer_epoch,
                        v3_and_below_topics=[AddPartitionsToTxnTopic(name="aborted", partitions=[0])],
                    ),
                    3,
                )
            )
            rows: list[rb.Row] = [(NOW_MS, None, b"v" * 20, [])] * 3
            records = bytes(
                rb.build_rows(
                    rows,
                    producer_id=producer.producer_id,
                    producer_epoch=producer.producer_epoch,
                    base_sequence=sequence,
                    is_transactional=True,
                )
            )
            sequence += 3
            data = PartitionProduceData(index=0, records=records)
            await send(
                request_frame(
                    ProduceRequest(
                        transactional_id="t",
                        acks=-1,
                        timeout_ms=30_000,
                        topic_data=[TopicProduceData(name="aborted", partition_data=[data])],
                    ),
                    9,
                )
            )
            if ending is not None:
                end = EndTxnRequest(
                    transactional_id="t",
                    producer_id=producer.producer_id,
                    producer_epoch=producer.producer_epoch,
                    committed=ending,
                )
                await send(request_frame(end, 3))
        append_to(listener, Append("aborted", 0, 3, 50))
    state = broker.log_state("aborted", 0)
    assert state.last_stable_offset < state.high_watermark, "a transaction is open"
    assert len(await broker.producers("aborted", 0)) == 1


def _sessions(listener: KafkaListener) -> list[object]:
    """Return all that a fetch changes."""
    cache = listener.fetch_sessions
    state: list[object] = [listener.broker.counts, len(cache), cache.partitions]
    for session in cache._sessions.values():
        partitions = [
            (key[1], one.topic, one.offset, one.max_bytes, one.leader_epoch, one.high_watermark, one.turn)
            for key, one in session._partitions.items()
        ]
        unsettled = sorted((one.topic, one.index) for one in at_once(session.candidates()))
        state.append((session.id, session.epoch, session.watch.isolation, partitions, unsettled))
    return state


async def _outcome(
    path: Path, steps: Sequence[Append | Delete | Fetch], quotas: Mapping[str, float], *, is_slow: bool
) -> tuple[list[bytes], list[object], list[Charge]]:
    """Return the responses, with the ids of the topics made equal, the sessions after all of them, and the charges."""
    responses: list[bytes] = []
    async with kafka_listener(path) as plain:
        ids = count(1)
        sessions = FetchSessionCache(
            slots=3, partitions_max=10, random_id=lambda: next(ids), make_watch=plain.broker.watch
        )
        listener = replace(plain, fetch_sessions=sessions)
        await _fill(listener)
        client = FetchClient()
        await set_quotas(listener.broker.quotas, quotas)
        with noted_charges(listener.broker.quotas) as charges:
            async with connected(listener, is_slow=is_slow) as send:
                for step in steps:
                    charges.now_ms += 3000
                    if isinstance(step, Append):
                        append_to(listener, step)
                    elif isinstance(step, Delete):
                        end = listener.broker.log_state(step.topic, step.partition).high_watermark
                        await listener.broker.delete_records(
                            step.topic, step.partition, min(step.before, end)
                        )
                    else:
                        response = await send(client.frame(listener, step))
                        client.note(step, response)
                        for number, name in enumerate(TOPICS):
                            topic_id = listener.broker.topic(name).topic_id.bytes
                            response = response.replace(topic_id, bytes((number,)) * 16)
                        responses.append(response)
        return responses, _sessions(listener), charges.noted


@settings(max_examples=6)
@given(steps=histories, quotas=quotas_set)
def test_reads_that_wait_give_the_same_responses_sessions_and_charges(
    steps: list[Append | Delete | Fetch], quotas: dict[str, float]
) -> None:
    with (
        tempfile.TemporaryDirectory() as direct,
        tempfile.TemporaryDirectory() as slow,
        # Markers have the time of the clock.
        mock.patch.object(SystemClock, "now_ms", return_value=NOW_MS),
    ):
        ours = asyncio.run(_outcome(Path(direct), steps, quotas, is_slow=False))
        theirs = asyncio.run(_outcome(Path(slow), steps, quotas, is_slow=True))
    assert ours == theirs


@pytest.mark.every(4)
@pytest.mark.parametrize("version", range(4, 19))
@pytest.mark.parametrize("isolation", [0, 1])
@pytest.mark.parametrize("quotas", [{}, {"consumer_byte_rate": 1e12, "request_percentage": 1e6}])
async def test_the_usual_fetch_is_answered_at_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    version: int,
    isolation: int,
    quotas: dict[str, float],
) -> None:
    async with kafka_listener(tmp_path) as listener:
        await set_quotas(listener.broker.quotas, quotas)
        await listener.broker.create_topic("orders", placement=Placement(partitions=1))
        for _ in range(10):
            append_to(listener, Append("orders", 0, 2, 500))
        client = FetchClient()
        usual = Fetch(version, "orders", 0, 0, isolation=isolation, wait_ms=500)
        async with connected(listener) as send:
            if version >= 7:
                # The first of a session has no state yet; the next one says which isolation level it wants.
                for first in (replace(usual, session="begin"), replace(usual, session="next")):
                    client.note(first, await send(client.frame(listener, first)))
            _refuse_to_wait(monkeypatch)
            for number in range(10):
                wanted = replace(usual, offset=2 * number, session="next" if version >= 7 else "none")
                response = await send(client.frame(listener, wanted))
                assert int.from_bytes(response[:4]) == client.correlation
                _, answer = read_response(response, FETCH_API, version)
                client.note(wanted, response)
                records = answer.responses[0].partitions[0].records
                assert rb.read_header(records).base_offset == 2 * number
                assert answer.responses[0].partitions[0].high_watermark == 20
        assert listener.fetch_sessions.partitions == (version >= 7)


@pytest.mark.every(3)
@pytest.mark.parametrize("version", range(4, 19))
async def test_a_fetch_of_several_partitions_is_answered_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    async with kafka_listener(tmp_path) as listener:
        for name, partitions in TOPICS.items():
            await listener.broker.create_topic(
                name, placement=Placement(partitions=partitions), configs=CONFIGS.get(name, {})
            )
        for _ in range(10):
            append_to(listener, Append("orders", 1, 2, 500))
            append_to(listener, Append("memory", 0, 1, 500))
        client = FetchClient()
        _refuse_to_wait(monkeypatch)
        async with connected(listener) as send:
            for number in range(10):
                fetch = Fetch(
                    version, "orders", 0, 0, others=(("orders", 1, 2 * number), ("memory", 0, number))
                )
                response = await send(client.frame(listener, fetch))
                _, answer = read_response(response, FETCH_API, version)
                answers = [partition for topic in answer.responses for partition in topic.partitions]
                assert [partition.high_watermark for partition in answers] == [0, 20, 10]
                assert not answers[0].records
                assert rb.read_header(answers[1].records).base_offset == 2 * number
                assert rb.read_header(answers[2].records).base_offset == number


@pytest.mark.parametrize("bytes_max", [0, 1, 1500, 6000, 8000])
async def test_the_limit_of_bytes_is_one_of_all_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bytes_max: int
) -> None:
    async with kafka_listener(tmp_path) as listener:
        await listener.broker.create_topic("orders", placement=Placement(partitions=3))
        for partition in (1, 2):
            for _ in range(10):
                append_to(listener, Append("orders", partition, 1, 500))
        others = (("orders", 1, 0), ("orders", 2, 0))
        fetch = Fetch(12, "orders", 0, 0, bytes_max=bytes_max, others=others, wait_ms=500)
        async with connected(listener, is_slow=True) as send:
            slow = await send(FetchClient().frame(listener, fetch))
        _refuse_to_wait(monkeypatch)
        async with connected(listener) as send:
            assert await send(FetchClient().frame(listener, fetch)) == slow
        _, answer = read_response(slow, FETCH_API, 12)
        none, first, second = (len(partition.records) for partition in answer.responses[0].partitions)
        batch = len(rb.build_rows([(NOW_MS, b"k", b"v" * 500, [])]))
        assert not none
        assert batch <= first <= max(batch, bytes_max)
        assert second <= max(0, bytes_max - first)
        assert (second > 0) == (bytes_max - first >= batch)


@pytest.mark.parametrize("quotas", [{"consumer_byte_rate": 1}, {"request_percentage": 1}])
async def test_a_fetch_that_is_answered_at_once_tells_its_client_to_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quotas: dict[str, float]
) -> None:
    async with kafka_listener(tmp_path) as listener:
        await listener.broker.create_topic("orders", placement=Placement(partitions=1))
        append_to(listener, Append("orders", 0, 2, 500))
        await set_quotas(listener.broker.quotas, quotas)
        with noted_charges(listener.broker.quotas) as charges, monkeypatch.context() as patched:
            seconds = count(0, 5)
            listener.broker.quotas.clock_s = lambda: float(next(seconds))
            _refuse_to_wait(patched)
            async with connected(listener) as send:
                response = await send(FetchClient().frame(listener, Fetch(12, "orders", 0, 0)))
        _, answer = read_response(response, FETCH_API, 12)
        (partition,) = answer.responses[0].partitions
        amounts = {key.value: amount for _, key, _, amount in charges.noted}
        if "request_percentage" in quotas:
            assert amounts["request_percentage"] == 500
            assert answer.throttle_time_ms == 1000
        else:
            assert amounts["consumer_byte_rate"] == len(partition.records)
            assert answer.throttle_time_ms == (len(partition.records) - 10) * 1000


@pytest.mark.parametrize("is_slow", [False, True])
async def test_a_fetch_brings_no_more_than_the_quota_allows_at_once(tmp_path: Path, is_slow: bool) -> None:
    async with kafka_listener(tmp_path) as listener:
        await listener.broker.create_topic("orders", placement=Placement(partitions=1))
        for _ in range(10):
            append_to(listener, Append("orders", 0, 1, 5000))
        # Ten seconds' worth: two batches.
        await set_quotas(listener.broker.quotas, {"consumer_byte_rate": 1200})
        with noted_charges(listener.broker.quotas) as charges:
            async with connected(listener, is_slow=is_slow) as send:
                response = await send(FetchClient().frame(listener, Fetch(12, "orders", 0, 0)))
        _, answer = read_response(response, FETCH_API, 12)
        records = answer.responses[0].partitions[0].records
        assert 10_000 < len(records) <= 12_000
        assert [(key.value, amount) for _, key, _, amount in charges.noted] == [
            ("consumer_byte_rate", len(records))
        ]


def _refuse_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("not answered at once")

    monkeypatch.setattr(fetch_handler, "_fetch", refuse)
    monkeypatch.setattr(fetch_handler, "_fetch_more", refuse)


@pytest.mark.parametrize("is_slow", [False, True])
async def test_a_right_that_is_revoked_is_missed_by_the_next_request(tmp_path: Path, is_slow: bool) -> None:
    read = Acl(
        resource_type=ResourceType.TOPIC,
        resource_name="orders",
        principal=str(ANONYMOUS),
        operation=Operation.READ,
    )
    authorizer = await authorizer_over([read])
    async with kafka_listener(tmp_path) as listener:
        await listener.broker.create_topic("orders", placement=Placement(partitions=1))
        append_to(listener, Append("orders", 0, 2, 500))
        listener = replace(listener, security=ListenerSecurity(listener="kafka", authorizer=authorizer))
        client, usual = FetchClient(), Fetch(11, "orders", 0, 0)
        async with connected(listener, is_slow=is_slow) as send:

            async def codes(number: int) -> list[int]:
                answers = [
                    read_response(await send(client.frame(listener, usual)), FETCH_API, 11)[1]
                    for _ in range(number)
                ]
                return [answer.responses[0].partitions[0].error_code for answer in answers]

            assert await codes(5) == [ErrorCode.NONE] * 5
            await authorizer.acls.remove(AclFilter())
            assert await codes(3) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 3
