"""Quotas on the TCP listeners: what responses say, and that a connection is not read from meanwhile.

The delays are of hours, so that no test depends on how long it takes; they end when the quota is removed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from stele.wire import messages as m
from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.fetch import FetchRequest
from stele.wire.kafka.groups import ListGroupsRequest
from stele.wire.kafka.produce import ProduceRequest
from stele.wire.kafka.quotas import (
    AlterClientQuotasEntry,
    AlterClientQuotasRequest,
    ComponentData,
    DescribeClientQuotasRequest,
    EntityData,
    OpData,
)

from app.broker.quotas.entities import QuotaEntity
from app.broker.quotas.limits import QuotaKey
from app.storage.embedded import EmbeddedEngine
from tests.support.batches import batch_of
from tests.support.binary_peer import Peer
from tests.support.kafka_peer import KafkaPeer, create_topic, fetch, produce, put
from tests.support.listeners import Listeners, listeners
from tests.support.share_groups import ACCEPT, Member, configure, offsets_of

EVERYBODY = QuotaEntity.of([("user", None)])
AN_HOUR_MS = 3_600_000
TOPIC = "t"


@asynccontextmanager
async def served(
    path: Path, settings: Mapping[str, Any] = MappingProxyType({}), **values: float
) -> AsyncGenerator[Listeners]:
    async with listeners(path, EmbeddedEngine, **settings) as at:
        await on_peer(at, lambda peer: create_topic(peer, TOPIC))
        if values:
            await at.broker.quotas.alter(EVERYBODY, values)
        yield at


async def in_thread(work: Callable[..., Any], *arguments: Any) -> Any:
    return await asyncio.to_thread(work, *arguments)


async def on_peer(at: Listeners, work: Callable[[KafkaPeer], Any]) -> Any:
    """Call ``work`` with a connection of its own."""

    def call() -> Any:
        with KafkaPeer(at) as peer:
            return work(peer)

    return await asyncio.to_thread(call)


async def remove(at: Listeners) -> None:
    for entity, values in at.broker.quotas.list():
        await at.broker.quotas.alter(entity, dict.fromkeys(values))


def produce_request(size: int, *, acks: int = 1) -> ProduceRequest:
    return produce(TOPIC, batch_of([b"x" * size]), acks=acks)


def fetch_request(offset: int = 0, **session: int) -> FetchRequest:
    return fetch(TOPIC, offset, **session)


def records_of(response: Any) -> bytes:
    return b"".join(bytes(p.records or b"") for topic in response.responses for p in topic.partitions)


def is_silent(at: Listeners, peer: Any) -> bool:
    """Return whether the request that was sent on ``peer`` is left unanswered, although a later one is answered."""
    with KafkaPeer(at) as other:
        other.call(ListGroupsRequest(states_filter=()), 4)
    peer.socket.setblocking(False)
    try:
        return not peer.socket.recv(1)
    except BlockingIOError:
        return True
    finally:
        peer.socket.settimeout(120)


# ── Kafka: produce ──


@pytest.mark.parametrize("version", [3, 7, 9])
async def test_a_produce_over_the_quota_is_stored_and_its_connection_waits(
    tmp_path: Path, version: int
) -> None:
    async with served(tmp_path, producer_byte_rate=1) as at:
        peer = await in_thread(KafkaPeer, at)
        answer = await in_thread(peer.call, produce_request(100_000), version)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        assert answer.throttle_time_ms > AN_HOUR_MS
        assert at.broker.log_state(TOPIC, 0).high_watermark == 1

        correlation = await in_thread(peer.post, produce_request(1), version)
        assert await in_thread(is_silent, at, peer)
        assert at.broker.log_state(TOPIC, 0).high_watermark == 1
        await remove(at)
        answered, answer = await in_thread(peer.next_answer)
        assert answered == correlation
        assert answer.throttle_time_ms == 0
        peer.close()


async def test_the_window_says_how_much_a_client_may_use_at_once(tmp_path: Path) -> None:
    # All samples but one count as full: an hour's worth of the quota.
    window = {"quota_window_num": 4, "quota_window_size_seconds": 1200}
    async with served(tmp_path, window, producer_byte_rate=100) as at:

        def ask(peer: KafkaPeer) -> list[bool]:
            return [peer.call(produce_request(size), 9).throttle_time_ms > 0 for size in (300_000, 100_000)]

        assert await on_peer(at, ask) == [False, True]
        await remove(at)


async def test_a_produce_within_the_quota_is_not_delayed(tmp_path: Path) -> None:
    async with served(tmp_path, producer_byte_rate=10_000_000) as at:
        answer = await on_peer(at, lambda peer: peer.call(produce_request(1000), 9))
        assert answer.throttle_time_ms == 0


async def test_a_produce_without_an_answer_delays_the_connection_too(tmp_path: Path) -> None:
    async with served(tmp_path, producer_byte_rate=1) as at:
        peer = await in_thread(KafkaPeer, at)
        await in_thread(
            peer.post_all, [(produce_request(100_000, acks=0), 9), (ListGroupsRequest(states_filter=()), 4)]
        )
        while not at.broker.log_state(TOPIC, 0).high_watermark:  # noqa: ASYNC110 - nothing tells of the append
            await asyncio.sleep(0)
        assert await in_thread(is_silent, at, peer)
        await remove(at)
        await in_thread(peer.next_answer)
        peer.close()


async def test_requests_that_came_together_wait_for_each_other(tmp_path: Path) -> None:
    async with served(tmp_path, producer_byte_rate=1) as at:
        peer = await in_thread(KafkaPeer, at)
        await in_thread(peer.post_all, [(produce_request(100_000), 9)] * 3)
        _, first = await in_thread(peer.next_answer)
        assert first.throttle_time_ms > AN_HOUR_MS
        assert await in_thread(is_silent, at, peer)
        assert at.broker.log_state(TOPIC, 0).high_watermark == 1
        await remove(at)
        await in_thread(peer.next_answer)
        await in_thread(peer.next_answer)
        assert at.broker.log_state(TOPIC, 0).high_watermark == 3
        peer.close()


async def test_a_delayed_connection_does_not_hold_up_the_end_of_the_broker(tmp_path: Path) -> None:
    async with served(tmp_path, producer_byte_rate=1) as at:
        peer = await in_thread(KafkaPeer, at)
        await in_thread(peer.call, produce_request(100_000), 9)
        await in_thread(peer.post, ListGroupsRequest(states_filter=()), 4)
        assert await in_thread(is_silent, at, peer)
        at.broker.begin_close()
        await in_thread(peer.next_answer)
        peer.close()


async def test_a_client_that_ends_its_side_still_waits(tmp_path: Path) -> None:
    async with served(tmp_path, producer_byte_rate=1) as at:
        peer = await in_thread(KafkaPeer, at)
        await in_thread(peer.call, produce_request(100_000), 9)
        await in_thread(peer.post, produce_request(1), 9)
        peer.end()
        assert await in_thread(is_silent, at, peer)
        await remove(at)
        await in_thread(peer.next_answer)
        assert at.broker.log_state(TOPIC, 0).high_watermark == 2
        peer.close()


async def test_the_client_id_decides(tmp_path: Path) -> None:
    async with served(tmp_path) as at:
        await at.broker.quotas.alter(QuotaEntity.of([("client-id", "loader")]), {"producer_byte_rate": 1})

        def both(peer: KafkaPeer) -> tuple[int, int]:
            other = peer.call(produce_request(100_000), 9, client_id="other")
            loader = peer.call(produce_request(100_000), 9, client_id="loader")
            return other.throttle_time_ms, loader.throttle_time_ms

        free_ms, delayed_ms = await on_peer(at, both)
        assert free_ms == 0
        assert delayed_ms > AN_HOUR_MS


# ── Kafka: fetch ──


@pytest.mark.parametrize("version", [1, 4, 12])
async def test_a_fetch_is_small_and_the_next_ones_are_empty(tmp_path: Path, version: int) -> None:
    async with served(tmp_path) as at:
        await on_peer(at, lambda peer: [put(peer, TOPIC, b"x" * 20_000) for _ in range(5)])
        await at.broker.quotas.alter(EVERYBODY, {"consumer_byte_rate": 2})
        peer = await in_thread(KafkaPeer, at)
        first = await in_thread(peer.call, fetch_request(), version)
        # More than the quota allows at once (20 bytes), but a fetch brings at least one batch.
        assert 20_000 <= len(records_of(first)) < 40_000
        assert first.throttle_time_ms > AN_HOUR_MS
        second = await on_peer(at, lambda other: other.call(fetch_request(1), version))
        assert records_of(second) == b""
        assert second.throttle_time_ms > AN_HOUR_MS
        await in_thread(peer.post, fetch_request(1), version)
        assert await in_thread(is_silent, at, peer)
        await remove(at)
        _, third = await in_thread(peer.next_answer)
        assert len(records_of(third)) >= 20_000
        assert third.throttle_time_ms == 0
        peer.close()


async def test_a_fetch_of_a_share_group_counts_for_the_same_quota(tmp_path: Path) -> None:
    def take(peer: KafkaPeer) -> Any:
        configure(peer, "queue", share_auto_offset_reset="earliest")
        member = Member(peer, "queue", TOPIC)
        while not member.partitions:
            member.beat()
        return peer.call(member.fetch_request(), 2)

    async with served(tmp_path) as at:
        await on_peer(at, lambda peer: [put(peer, TOPIC, b"x" * 20_000) for _ in range(5)])
        await at.broker.quotas.alter(EVERYBODY, {"consumer_byte_rate": 2})
        answer = await on_peer(at, take)
        assert 20_000 <= len(records_of(answer)) < 40_000
        assert answer.throttle_time_ms > AN_HOUR_MS


async def test_a_fetch_of_a_share_group_on_another_connection_is_empty_while_its_client_waits(
    tmp_path: Path,
) -> None:
    def take_twice(first: KafkaPeer, second: KafkaPeer) -> tuple[Any, Any]:
        configure(first, "queue", share_auto_offset_reset="earliest")
        member, waiting = Member(first, "queue", TOPIC), Member(second, "queue", TOPIC)
        while not (member.partitions and waiting.partitions):
            member.beat()
            waiting.beat()
        # Its session begins, and brings a record that it acknowledges with its next fetch.
        begun = second.call(waiting.fetch_request(max_records=1), 2)
        (acquired,) = waiting.took(begun).values()
        set_quota()
        over = first.call(member.fetch_request(max_records=1), 2)
        accepted: dict[int, Sequence[tuple[int, int, int]]] = {0: [(acquired[0][0], acquired[0][1], ACCEPT)]}
        empty = second.call(waiting.fetch_request(accepted, max_records=1), 2)
        assert waiting.took(empty) == {}
        return over, empty

    async with served(tmp_path) as at:
        loop = asyncio.get_running_loop()

        def set_quota() -> None:
            alter = at.broker.quotas.alter(EVERYBODY, {"consumer_byte_rate": 2})
            asyncio.run_coroutine_threadsafe(alter, loop).result()

        await on_peer(at, lambda peer: [put(peer, TOPIC, b"x" * 20_000) for _ in range(5)])
        first, second = await in_thread(KafkaPeer, at), await in_thread(KafkaPeer, at)
        over, empty = await in_thread(take_twice, first, second)
        assert len(records_of(over)) >= 20_000
        assert over.throttle_time_ms > AN_HOUR_MS
        assert records_of(empty) == b""
        assert empty.throttle_time_ms > AN_HOUR_MS
        # The acknowledgement counts all the same.
        (answered,) = empty.responses[0].partitions
        assert (answered.acknowledge_error_code, answered.acquired_records) == (ErrorCode.NONE, [])
        (state,) = await on_peer(at, lambda peer: list(offsets_of(peer, "queue").values()))
        assert state[0] == 1
        await in_thread(second.post, ListGroupsRequest(states_filter=()), 4)
        assert await in_thread(is_silent, at, second)
        await remove(at)
        await in_thread(second.next_answer)
        first.close()
        second.close()


async def test_the_oldest_fetch_has_no_room_for_the_delay_and_is_delayed_anyway(tmp_path: Path) -> None:
    async with served(tmp_path) as at:
        await on_peer(at, lambda peer: put(peer, TOPIC, b"x" * 20_000))
        await at.broker.quotas.alter(EVERYBODY, {"consumer_byte_rate": 1})
        peer = await in_thread(KafkaPeer, at)
        await in_thread(peer.call, fetch_request(), 0)
        await in_thread(peer.post, fetch_request(), 0)
        assert await in_thread(is_silent, at, peer)
        await remove(at)
        await in_thread(peer.next_answer)
        peer.close()


async def test_a_fetch_session_survives_an_empty_answer(tmp_path: Path) -> None:
    async with served(tmp_path) as at:
        await on_peer(at, lambda peer: put(peer, TOPIC, b"x" * 20_000))
        peer = await in_thread(KafkaPeer, at)
        opened = await in_thread(peer.call, fetch_request(session_epoch=0), 12)
        assert opened.session_id
        await at.broker.quotas.alter(EVERYBODY, {"consumer_byte_rate": 1})
        other = await on_peer(at, lambda one: one.call(fetch_request(), 12))
        assert other.throttle_time_ms > AN_HOUR_MS

        at_epoch_1 = fetch_request(session_id=opened.session_id, session_epoch=1)
        empty = await in_thread(peer.call, at_epoch_1, 12)
        assert (empty.error_code, empty.session_id) == (ErrorCode.NONE, opened.session_id)
        assert empty.throttle_time_ms > AN_HOUR_MS
        assert records_of(empty) == b""
        await remove(at)
        at_epoch_2 = fetch_request(session_id=opened.session_id, session_epoch=2)
        answer = await in_thread(peer.call, at_epoch_2, 12)
        assert answer.error_code == ErrorCode.NONE
        assert len(records_of(answer)) >= 20_000
        peer.close()


# ── Kafka: the time of requests ──


async def test_the_time_of_requests_is_limited(tmp_path: Path) -> None:
    async with served(tmp_path) as at:
        seconds = iter(range(0, 10**9, 5))
        at.broker.quotas.clock_s = lambda: float(next(seconds))
        await at.broker.quotas.alter(EVERYBODY, {"request_percentage": 1})

        def ask(peer: KafkaPeer) -> list[int]:
            return [peer.call(ListGroupsRequest(states_filter=()), 4).throttle_time_ms for _ in range(2)]

        # The longest delay of this quota: one sample.
        assert await on_peer(at, ask) == [1000, 1000]


# ── Kafka: the APIs ──


def altered(
    peer: KafkaPeer, version: int, entity: dict[str, str | None], *ops: tuple[str, float, bool]
) -> int:
    entry = AlterClientQuotasEntry(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[OpData(key=key, value=value, remove=remove) for key, value, remove in ops],
    )
    request = AlterClientQuotasRequest(entries=[entry], validate_only=False)
    (result,) = peer.call(request, version).entries
    assert [(part.entity_type, part.entity_name) for part in result.entity] == list(entity.items())
    assert bool(result.error_code) == bool(result.error_message)
    return result.error_code


def described(peer: KafkaPeer, version: int, *, strict: bool, **components: tuple[int, str | None]) -> Any:
    request = DescribeClientQuotasRequest(
        components=[
            ComponentData(entity_type=kind.replace("_", "-"), match_type=match, match=name)
            for kind, (match, name) in components.items()
        ],
        strict=strict,
    )
    answer = peer.call(request, version)
    assert answer.error_code == ErrorCode.NONE
    return [
        (
            {part.entity_type: part.entity_name for part in entry.entity},
            {value.key: value.value for value in entry.values},
        )
        for entry in answer.entries
    ]


@pytest.mark.parametrize("version", [0, 1])
async def test_quotas_are_set_described_and_removed(tmp_path: Path, version: int) -> None:
    def talk(peer: KafkaPeer) -> None:
        bob = {"user": "bob", "client-id": None}
        assert altered(peer, version, bob, ("producer_byte_rate", 1024.0, False)) == 0
        assert altered(peer, version, bob, ("request_percentage", 12.5, False)) == 0
        assert altered(peer, version, {"user": None}, ("consumer_byte_rate", 7.0, False)) == 0
        assert altered(peer, version, {"ip": "192.0.2.7"}, ("connection_creation_rate", 3.0, False)) == 0
        of_bob = (
            {"client-id": None, "user": "bob"},
            {"producer_byte_rate": 1024.0, "request_percentage": 12.5},
        )
        of_users = ({"user": None}, {"consumer_byte_rate": 7.0})
        of_ip = ({"ip": "192.0.2.7"}, {"connection_creation_rate": 3.0})
        everything = described(peer, version, strict=False)
        assert sorted(map(str, everything)) == sorted(map(str, [of_bob, of_users, of_ip]))
        assert described(peer, version, strict=False, ip=(2, None)) == [of_ip]
        assert described(peer, version, strict=True, user=(1, None)) == [of_users]
        assert described(peer, version, strict=True, user=(0, "bob")) == []
        assert described(peer, version, strict=False, user=(0, "bob")) == [of_bob]
        refused = altered(
            peer, version, bob, ("producer_byte_rate", 5.0, False), ("controller_mutation_rate", 5.0, False)
        )
        assert refused == ErrorCode.INVALID_REQUEST
        assert described(peer, version, strict=False, user=(0, "bob")) == [of_bob]
        removals = [(key, 0.0, True) for key in ("producer_byte_rate", "request_percentage")]
        assert altered(peer, version, bob, *removals) == 0
        assert described(peer, version, strict=False, user=(0, "bob")) == []

    async with served(tmp_path) as at:
        await on_peer(at, talk)


# ── the binary protocol ──


def binary_produce(size: int) -> m.ProduceBatchRequest:
    return m.ProduceBatchRequest(
        topic=TOPIC, partition=0, acks=1, timeout_ms=10_000, batches=bytes(batch_of([b"x" * size]))
    )


def simple_produce(size: int) -> m.ProduceRequest:
    return m.ProduceRequest(topic=TOPIC, data=b"x" * size)


def conditional_produce(size: int) -> m.ConditionalProduceRequest:
    return m.ConditionalProduceRequest(
        topic=TOPIC,
        partition=0,
        acks=1,
        batches=bytes(batch_of([b"x" * size])),
        expected_end=0 if size > 1 else 1,
    )


@pytest.mark.parametrize(
    "request_of",
    [simple_produce, binary_produce, conditional_produce],
    ids=["simple", "batch", "conditional"],
)
async def test_a_binary_produce_is_stored_and_its_connection_waits(
    tmp_path: Path, request_of: Callable[[int], m.Request]
) -> None:

    async with served(tmp_path, producer_byte_rate=1) as at:
        peer = await in_thread(Peer, at)
        answer = await in_thread(peer.call, request_of(100_000))
        assert not isinstance(answer, m.ErrorResponse)
        await in_thread(peer.send, request_of(1).encode())
        assert await in_thread(is_silent, at, peer)
        assert at.broker.log_state(TOPIC, 0).high_watermark == 1
        assert at.broker.quotas.throttling["binary", QuotaKey.PRODUCE].violations == 1
        await remove(at)
        await in_thread(peer.frame)
        assert at.broker.log_state(TOPIC, 0).high_watermark == 2
        peer.close()


async def test_a_binary_fetch_is_small_and_its_connection_waits(tmp_path: Path) -> None:
    request = m.FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=10**6,
        partitions=[m.FetchPartition(topic=TOPIC, partition=0, offset=0, max_bytes=10**6)],
    )
    async with served(tmp_path) as at:
        await on_peer(at, lambda peer: [put(peer, TOPIC, b"x" * 20_000) for _ in range(5)])
        await at.broker.quotas.alter(EVERYBODY, {"consumer_byte_rate": 1})
        peer = await in_thread(Peer, at)
        answer = await in_thread(peer.call, request)
        assert isinstance(answer, m.FetchResponse)
        assert 20_000 <= len(answer.partitions[0].batches) < 40_000
        await in_thread(peer.send, request.encode())
        assert await in_thread(is_silent, at, peer)
        await remove(at)
        await in_thread(peer.frame)
        peer.close()


# ── all of them together ──


async def test_one_quota_holds_for_all_listeners(tmp_path: Path) -> None:
    async with served(tmp_path, producer_byte_rate=1) as at:
        await on_peer(at, lambda peer: peer.call(produce_request(100_000), 9))
        refused = await at.http.post(
            f"/v1/topics/{TOPIC}/records", content=b"x", headers={"Content-Type": "application/octet-stream"}
        )
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) * 1000 > AN_HOUR_MS
