"""What members of share groups are told when another broker may have their group."""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import UUID

from stele.wire.error_codes import ErrorCode as E
from stele.wire.kafka.share_groups import (
    FetchPartition,
    FetchTopic,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareGroupHeartbeatRequest,
)
from stele.wire.record_batch import build_values

from app.broker.placement import Placement
from app.broker.producing.produce import Acks
from app.errors import NotCoordinator
from app.tcp.kafka.context import Context, KafkaListener
from app.tcp.kafka.handlers.groups.share_fetch import share_acknowledge, share_fetch
from app.tcp.kafka.handlers.groups.share_groups import share_group_heartbeat
from app.tcp.kafka.sessions.share_sessions import ClientConnection
from tests.support.kafka_application import kafka_listener
from tests.support.simulated_time import simulated


@simulated
async def test_a_fetch_that_waited_while_the_lease_ended_is_tried_again(tmp_path: Path) -> None:
    async with kafka_listener(tmp_path) as listener:
        topic = await listener.broker.create_topic("orders", placement=Placement(partitions=1))
        context = Context(listener=listener, version=2, client_id="", client_host="")
        await join(context, "m")
        ended: list[NotCoordinator] = []

        def check() -> None:
            for error in ended:
                raise error

        context.coordinator("g").check_each_call(check)

        fetching = asyncio.ensure_future(share_fetch(context, request(topic.topic_id, 0)))
        await asyncio.sleep(1)
        assert not fetching.done()
        ended.append(NotCoordinator(2))
        await put(listener)
        answer = await fetching
        (fetched,) = answer.responses[0].partitions
        # Kafka's consumer ends with an exception after NOT_COORDINATOR.
        assert (answer.error_code, fetched.error_code) == (E.NONE, E.KAFKA_STORAGE_ERROR)
        assert fetched.acquired_records == []
        # It begins a new session after these.
        refused = await share_fetch(context, request(topic.topic_id, 1))
        assert refused.error_code == E.SHARE_SESSION_NOT_FOUND
        acknowledging = ShareAcknowledgeRequest(group_id="g", member_id="m", share_session_epoch=2, topics=())
        assert (await share_acknowledge(context, acknowledging)).error_code == E.SHARE_SESSION_NOT_FOUND
        ended.clear()


@simulated
async def test_a_fetch_whose_connection_has_ended_delivers_nothing(tmp_path: Path) -> None:
    async with kafka_listener(tmp_path) as listener:
        topic = await listener.broker.create_topic("orders", placement=Placement(partitions=1))
        gone = ClientConnection("another broker", 1)
        ending, staying = (
            Context(listener=listener, version=2, client_id="", client_host="", connection=connection)
            for connection in (gone, ClientConnection("another broker", 2))
        )
        for context, member in ((ending, "m"), (staying, "n")):
            await join(context, member)
        fetching = asyncio.ensure_future(share_fetch(ending, request(topic.topic_id, 0)))
        await asyncio.sleep(1)
        # The coordinator may be told of the end before the request that waits ends.
        listener.give_back(listener.share_sessions.lost(gone))
        await put(listener)
        assert (await fetching).responses == []
        answer = await share_fetch(staying, request(topic.topic_id, 0, member="n"))
        (fetched,) = answer.responses[0].partitions
        ((acquired,),) = [fetched.acquired_records]
        assert (acquired.first_offset, acquired.last_offset, acquired.delivery_count) == (0, 0, 1)


@simulated
async def test_a_fetch_of_a_session_that_the_member_has_replaced_delivers_nothing(tmp_path: Path) -> None:
    """The member has connected again, and nobody reads the answer to the request that waits."""
    async with kafka_listener(tmp_path) as listener:
        topic = await listener.broker.create_topic("orders", placement=Placement(partitions=1))
        before, after = (
            Context(listener=listener, version=2, client_id="", client_host="", connection=connection)
            for connection in (ClientConnection(number=1), ClientConnection(number=2))
        )
        await join(before, "m")
        abandoned = asyncio.ensure_future(share_fetch(before, request(topic.topic_id, 0)))
        await asyncio.sleep(1)
        fetching = asyncio.ensure_future(share_fetch(after, request(topic.topic_id, 0)))
        await asyncio.sleep(1)
        await put(listener)
        assert (await abandoned).responses == []
        (fetched,) = (await fetching).responses[0].partitions
        assert [
            (one.first_offset, one.last_offset, one.delivery_count) for one in fetched.acquired_records
        ] == [(0, 0, 1)]


async def join(context: Context, member: str) -> None:
    joining = ShareGroupHeartbeatRequest(
        group_id="g", member_id=member, member_epoch=0, subscribed_topic_names=["orders"]
    )
    joined = await share_group_heartbeat(context, joining)
    assert joined.error_code == E.NONE, joined


def request(topic_id: UUID, epoch: int, *, member: str = "m") -> ShareFetchRequest:
    partition = FetchPartition(partition_index=0, acknowledgement_batches=())
    named = [FetchTopic(topic_id=topic_id.bytes, partitions=[partition])]
    return ShareFetchRequest(
        group_id="g",
        member_id=member,
        share_session_epoch=epoch,
        max_wait_ms=30_000,
        min_bytes=1,
        max_records=10,
        batch_size=10,
        topics=[] if epoch else named,
        forgotten_topics_data=(),
    )


async def put(listener: KafkaListener) -> None:
    batch = build_values([b"a"], listener.broker.now_ms())
    await listener.broker.produce("orders", 0, batch, acks=Acks.LEADER).wait(1_000)
