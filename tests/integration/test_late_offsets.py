"""Every listener over an engine whose offsets come later, and to which other brokers append."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from stele.wire import messages as m
from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

from app.broker.reading.fetch import PartitionFetch
from app.errors import StorageUnavailable
from app.storage.topic_partition import TopicPartition
from tests.support import kafka_peer
from tests.support.batches import batch_of
from tests.support.binary_peer import Peer, consume_frame, decode, produce_frame, produced_offset
from tests.support.kafka_peer import KafkaPeer, only_partition, records_in
from tests.support.late_engine import LateEngine
from tests.support.listeners import Listeners, listeners

TOPIC = "orders"
PRODUCE_VERSION = 9


async def stored(at: Listeners) -> list[tuple[int, bytes | None]]:
    """Offsets and values of the whole partition."""
    request = PartitionFetch(topic=TOPIC, partition=0, offset=0, max_bytes=1 << 20)
    (read,) = await at.broker.fetch([request], max_bytes=1 << 20)
    return records_in(bytes(read.batches))


async def test_each_kind_of_produce_is_answered_with_the_offsets_of_its_records(tmp_path: Path) -> None:
    expected: list[tuple[int, bytes]] = []

    def note(base_offset: int, *values: bytes) -> None:
        expected.extend(enumerate(values, base_offset))

    def over_binary(at: Listeners) -> None:
        with Peer(at) as peer:
            singles = [b"single %d" % number for number in range(5)]
            peer.send(*(produce_frame(TOPIC, value) for value in singles))
            for value, frame in zip(singles, peer.frames(len(singles)), strict=True):
                note(produced_offset(frame), value)
            for acks in (0, 1, -1):
                values = [b"binary acks=%d" % acks, b"and one more"]
                request = m.ProduceBatchRequest(topic=TOPIC, partition=0, acks=acks, batches=batch_of(values))
                response = peer.call(request)
                assert isinstance(response, m.ProduceBatchResponse), response
                if acks:
                    assert response.last_offset == response.base_offset + 1
                    note(response.base_offset, *values)

    def over_kafka(at: Listeners) -> None:
        with KafkaPeer(at) as peer:
            sent = [(acks, [b"kafka acks=%d" % acks, b"and one more"]) for acks in (1, -1, 1)]
            peer.post_all(
                [
                    (kafka_peer.produce(TOPIC, batch_of(values), acks=acks), PRODUCE_VERSION)
                    for acks, values in sent
                ]
            )
            for _, values in sent:
                _, response = peer.next_answer()
                part = only_partition(response)
                assert part.error_code == 0
                note(part.base_offset, *values)

    async with listeners(tmp_path, LateEngine) as at:
        await at.broker.create_topic(TOPIC)
        await asyncio.to_thread(over_binary, at)
        await asyncio.to_thread(over_kafka, at)
        for acks in ("0", "1", "all"):
            values = [f"http acks={acks} {number}".encode() for number in range(3)]
            body = {"records": [{"value": value.decode()} for value in values]}
            answer = await at.http.post(f"/v1/topics/{TOPIC}/records", params={"acks": acks}, json=body)
            assert answer.status_code == 200, answer.text
            offsets = [record["offset"] for record in answer.json()["records"]]
            expected += zip(offsets, values, strict=True)
        found = await stored(at)
        without_offsets = [record for record in found if record not in expected]
        assert [value for _, value in without_offsets] == [b"binary acks=0", b"and one more"]
        assert sorted(expected + without_offsets) == found
        assert [offset for offset, _ in found] == list(range(len(found)))
        assert at.broker.counts.appended_records == len(found)


async def test_pipelined_batches_of_an_idempotent_producer_and_their_retries_are_stored_once(
    tmp_path: Path,
) -> None:
    def batch(producer_id: int, number: int) -> bytearray:
        values = [b"%d %d" % (producer_id, number), b"and one more"]
        return batch_of(values, producer_id=producer_id, base_sequence=2 * number)

    # Each retry comes while the first time is still on its way.
    numbers = (0, 0, 1, 0, 2, 1)

    def over_kafka(at: Listeners, producer_id: int) -> list[int]:
        with KafkaPeer(at) as peer:
            requests = [
                (kafka_peer.produce(TOPIC, batch(producer_id, number)), PRODUCE_VERSION) for number in numbers
            ]
            peer.post_all(requests)
            parts = [only_partition(peer.next_answer()[1]) for _ in numbers]
            assert [part.error_code for part in parts] == [0] * len(numbers)
            return [part.base_offset for part in parts]

    def over_binary(at: Listeners, producer_id: int) -> list[int]:
        with Peer(at) as peer:
            requests = [
                m.ProduceBatchRequest(
                    topic=TOPIC, partition=0, acks=1, batches=batch(producer_id, number)
                ).encode()
                for number in numbers
            ]
            peer.send(*requests)
            answers = [m.decode_response(frame[4], frame[5:]) for frame in peer.frames(len(numbers))]
            return [answer.base_offset for answer in answers if isinstance(answer, m.ProduceBatchResponse)]

    async def over_http(at: Listeners, producer_id: int) -> list[int]:
        async def post(number: int) -> int:
            answer = await at.http.post(
                f"/v1/topics/{TOPIC}/records",
                headers={
                    "Producer-Id": str(producer_id),
                    "Producer-Epoch": "0",
                    "Producer-Sequence": str(2 * number),
                },
                json={"records": [{"value": f"{producer_id} {number}"}, {"value": "and one more"}]},
            )
            assert answer.status_code == 200, answer.text
            return answer.json()["records"][0]["offset"]

        return [offset for number in (0, 1) for offset in await asyncio.gather(post(number), post(number))]

    async with listeners(tmp_path, LateEngine) as at:
        await at.broker.create_topic(TOPIC)
        ids = [(await at.broker.init_producer_id())[0] for _ in range(3)]
        assert await asyncio.to_thread(over_kafka, at, ids[0]) == [0, 0, 2, 0, 4, 2]
        assert await asyncio.to_thread(over_binary, at, ids[1]) == [6, 6, 8, 6, 10, 8]
        assert await over_http(at, ids[2]) == [12, 12, 14, 14]
        values = [value for _, value in await stored(at)][::2]
        assert values == [
            *(b"%d %d" % (producer_id, number) for producer_id in ids[:2] for number in range(3)),
            *(b"%d %d" % (ids[2], number) for number in range(2)),
        ]


# ── reads behind produces of the same connection ──


async def test_a_read_sees_the_earlier_produces_of_its_connection_and_not_the_later_ones(
    tmp_path: Path,
) -> None:
    fetch = m.FetchRequest(partitions=[m.FetchPartition(topic=TOPIC, partition=0, offset=0)]).encode()
    latest = m.ListOffsetsRequest(topic=TOPIC, partition=0, timestamp_ms=m.LATEST_TIMESTAMP).encode()

    def play(at: Listeners) -> None:
        with Peer(at) as peer:
            produces = {
                "simple": produce_frame(TOPIC, b"x"),
                "acks=1": m.ProduceBatchRequest(
                    topic=TOPIC, partition=0, acks=1, batches=batch_of([b"x"])
                ).encode(),
                "acks=all": m.ProduceBatchRequest(
                    topic=TOPIC, partition=0, acks=-1, batches=batch_of([b"x"])
                ).encode(),
            }
            for number, produce in enumerate(produces.values()):
                # Two records of this round before each read, and one after them all.
                before, end = 3 * number, 3 * number + 2
                peer.send(produce, produce, consume_frame(TOPIC, before, 10), fetch, latest, produce)
                answers = [decode(frame) for frame in peer.frames(6)]
                consumed, fetched, listed = answers[2:5]
                assert isinstance(consumed, m.ConsumeResponse), consumed
                assert [offset for offset, _ in consumed.messages] == [before, before + 1]
                assert isinstance(fetched, m.FetchResponse), fetched
                assert fetched.partitions[0].high_watermark == end
                assert len(records_in(fetched.partitions[0].batches)) == end
                assert isinstance(listed, m.ListOffsetsResponse), listed
                assert listed.offset == end

    async with listeners(tmp_path, LateEngine) as at:
        await at.broker.create_topic(TOPIC)
        await asyncio.to_thread(play, at)


async def test_a_connection_that_ends_while_a_read_waits_for_its_produce_leaves_nothing(
    tmp_path: Path,
) -> None:
    async with listeners(tmp_path, LateEngine) as at:
        assert isinstance(at.engine, LateEngine)
        await at.broker.create_topic(TOPIC)
        at.engine.may_commit.clear()
        peer = await asyncio.to_thread(Peer, at)
        peer.send(produce_frame(TOPIC, b"x"), consume_frame(TOPIC, 0, 10), produce_frame(TOPIC, b"y"))
        await at.engine.has_appended.wait()
        await asyncio.to_thread(peer.reset)
        at.engine.may_commit.set()
        await at.engine.flush()
        assert (await stored(at))[0] == (0, b"x")


# ── what other brokers append ──


def _elsewhere(at: Listeners, *values: bytes) -> None:
    assert isinstance(at.engine, LateEngine)
    at.engine.append_elsewhere(TopicPartition(TOPIC, 0), batch_of(values or [b"elsewhere"]))


async def test_no_answer_depends_on_an_end_that_another_broker_has_moved(tmp_path: Path) -> None:
    def over_kafka(at: Listeners, request: object, version: int) -> Any:
        with KafkaPeer(at) as peer:
            return peer.call(request, version)

    async with listeners(tmp_path, LateEngine) as at:
        await at.broker.create_topic(TOPIC)
        records = f"/v1/topics/{TOPIC}/partitions/0"
        _elsewhere(at)
        answer = await at.http.get(f"{records}/offsets", params={"at": "latest"})
        assert answer.json()["offset"] == 1

        _elsewhere(at)
        listed = await asyncio.to_thread(
            over_kafka,
            at,
            ListOffsetsRequest(
                replica_id=-1,
                topics=[
                    ListOffsetsTopic(
                        name=TOPIC,
                        partitions=[ListOffsetsPartition(partition_index=0, timestamp=m.LATEST_TIMESTAMP)],
                    )
                ],
            ),
            1,
        )
        assert listed.topics[0].partitions[0].offset == 2

        # A fetch without a wait, at the end that is known.
        _elsewhere(at)
        request = PartitionFetch(topic=TOPIC, partition=0, offset=2, max_bytes=1 << 20)
        (read,) = await at.broker.fetch([request], max_bytes=1 << 20)
        assert [offset for offset, _ in records_in(bytes(read.batches))] == [2]

        # A member commits what it has read through another broker; then the lag.
        joined = (await at.http.post("/v1/groups/g/members", json={"topics": [TOPIC]})).json()
        claim = {"member_id": joined["member_id"], "generation": joined["generation"]}
        owned = f"/v1/groups/g/partitions/{TOPIC}/0"
        assert (await at.http.put(f"{owned}/owner", json=claim)).is_success
        _elsewhere(at)
        committed = await at.http.put(f"{owned}/offset", json={**claim, "offset": 4})
        assert committed.status_code == 200, committed.text
        _elsewhere(at)
        assert (await at.http.get("/v1/groups/g")).json()["lag"] == 1

        _elsewhere(at)
        polled = await at.http.post("/v1/groups/queue/poll", json={"topics": [TOPIC], "max_records": 100})
        assert polled.status_code == 200, polled.text
        assert [record["offset"] for record in polled.json()["records"]] == list(range(6))

        _elsewhere(at)
        purged = await at.http.delete(f"/v1/topics/{TOPIC}/records")
        assert purged.json()["partitions"][0]["log_start_offset"] == 7


async def test_a_storage_that_is_not_available_is_reported_as_something_to_try_again(tmp_path: Path) -> None:
    latest = m.ListOffsetsRequest(topic=TOPIC, partition=0, timestamp_ms=m.LATEST_TIMESTAMP)

    def over_binary(at: Listeners) -> object:
        with Peer(at) as peer:
            return peer.call(latest)

    def over_kafka(at: Listeners) -> Any:
        with KafkaPeer(at) as peer:
            return only_partition(peer.call(kafka_peer.fetch(TOPIC, 0, max_wait_ms=0), 11))

    async with listeners(tmp_path, LateEngine) as at:
        assert isinstance(at.engine, LateEngine)
        await at.broker.create_topic(TOPIC)

        def fail() -> None:
            assert isinstance(at.engine, LateEngine)
            at.engine.refresh_error = StorageUnavailable("the refresh of orders-0", "connection refused")

        fail()
        answer = await at.http.get(f"/v1/topics/{TOPIC}/partitions/0/offsets")
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
        assert answer.json()["type"].endswith("storage-unavailable")
        fail()
        refused = await asyncio.to_thread(over_binary, at)
        assert isinstance(refused, m.ErrorResponse)
        assert refused.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert "try again" in refused.message
        fail()
        assert (await asyncio.to_thread(over_kafka, at)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await at.http.get(f"/v1/topics/{TOPIC}/partitions/0/offsets")).status_code == 200
