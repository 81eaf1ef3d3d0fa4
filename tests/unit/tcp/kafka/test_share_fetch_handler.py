"""What members of share groups are told when another broker may have their group."""

from __future__ import annotations

import asyncio
from pathlib import Path

from stele.wire.error_codes import ErrorCode as E
from stele.wire.record_batch import build_values

from app.broker.placement import Placement
from app.broker.produce import Acks
from app.errors import NotCoordinator
from app.tcp.kafka.handlers.context import Context
from app.tcp.kafka.handlers.share_fetch import share_acknowledge, share_fetch
from app.tcp.kafka.handlers.share_groups import share_group_heartbeat
from app.tcp.kafka.schemas.share_acknowledge import ShareAcknowledgeRequest
from app.tcp.kafka.schemas.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest
from app.tcp.kafka.schemas.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.support.kafka_application import kafka_listener
from tests.support.simulated_time import simulated


@simulated
async def test_a_fetch_that_waited_while_the_lease_ended_is_tried_again(tmp_path: Path) -> None:
    async with kafka_listener(tmp_path) as listener:
        topic = await listener.broker.create_topic("orders", placement=Placement(partitions=1))
        context = Context(listener=listener, version=2, client_id="", client_host="")
        joined = await share_group_heartbeat(
            context,
            ShareGroupHeartbeatRequest(
                group_id="g", member_id="m", member_epoch=0, subscribed_topic_names=["orders"]
            ),
        )
        assert joined.error_code == E.NONE, joined
        ended: list[NotCoordinator] = []

        def check() -> None:
            for error in ended:
                raise error

        context.coordinator("g").check_each_call(check)

        def request(epoch: int) -> ShareFetchRequest:
            named = [FetchTopic(topic_id=topic.topic_id.bytes, partitions=[PARTITION])]
            return ShareFetchRequest(
                group_id="g",
                member_id="m",
                share_session_epoch=epoch,
                max_wait_ms=30_000,
                min_bytes=1,
                max_records=10,
                batch_size=10,
                topics=[] if epoch else named,
                forgotten_topics_data=(),
            )

        fetching = asyncio.ensure_future(share_fetch(context, request(0)))
        await asyncio.sleep(1)
        assert not fetching.done()
        ended.append(NotCoordinator(2))
        await listener.broker.produce(
            "orders", 0, build_values([b"a"], listener.broker.now_ms()), acks=Acks.LEADER
        ).wait(1_000)
        answer = await fetching
        (fetched,) = answer.responses[0].partitions
        # Kafka's consumer ends with an exception after NOT_COORDINATOR.
        assert (answer.error_code, fetched.error_code) == (E.NONE, E.KAFKA_STORAGE_ERROR)
        assert fetched.acquired_records == []
        # It begins a new session after these.
        refused = await share_fetch(context, request(1))
        assert refused.error_code == E.SHARE_SESSION_NOT_FOUND
        acknowledging = ShareAcknowledgeRequest(group_id="g", member_id="m", share_session_epoch=2, topics=())
        assert (await share_acknowledge(context, acknowledging)).error_code == E.SHARE_SESSION_NOT_FOUND
        ended.clear()


PARTITION = FetchPartition(partition_index=0, acknowledgement_batches=())
