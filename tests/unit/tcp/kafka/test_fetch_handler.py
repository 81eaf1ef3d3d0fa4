"""What a fetch may look for, and what it may return after a wait."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from unittest import mock

import pytest
from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.fetch import FETCH_API, FetchPartition, FetchRequest, FetchResponse, FetchTopic

from app.broker.cluster import SoloCluster
from app.broker.producing.produce import Acks
from app.security.acl import Acl, Operation, ResourceType
from app.security.policy import ListenerSecurity
from app.security.principal import ANONYMOUS
from app.storage.engine import PartitionFetch
from app.tcp.kafka.apis import SERVED
from app.tcp.kafka.context import Context
from app.tcp.kafka.handlers.fetch import fetch
from app.work_budget import pause
from tests.support.acls import authorizer_over
from tests.support.batches import batch_of
from tests.support.kafka_application import kafka_listener


async def _answer(answer: FetchResponse | Coroutine[Any, Any, FetchResponse]) -> FetchResponse:
    return await answer if isinstance(answer, Coroutine) else answer


async def test_a_name_that_may_not_be_read_is_not_looked_up(tmp_path: Path) -> None:
    read = Acl(
        resource_type=ResourceType.TOPIC,
        resource_name="open",
        principal=str(ANONYMOUS),
        operation=Operation.READ,
    )
    security = ListenerSecurity(listener="kafka", authorizer=await authorizer_over([read]))
    looked_up: list[str] = []

    async def find(
        names: Iterable[str] = (), *, ids: Iterable[bytes] = (), partitions: Iterable[tuple[str, int]] = ()
    ) -> None:
        looked_up.extend({*names, *(topic for topic, _ in partitions)})
        assert not list(ids)

    async with kafka_listener(tmp_path) as plain:
        await plain.broker.create_topic("hidden")
        listener = replace(plain, security=security)
        context = Context(
            listener=listener,
            version=12,
            client_id="",
            client_host="127.0.0.1",
            access=security.access(ANONYMOUS, "127.0.0.1"),
        )
        names = ("open", "hidden", "missing")
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=1000,
            session_epoch=-1,
            topics=[
                FetchTopic(
                    topic=name,
                    partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)],
                )
                for name in names
            ],
        )
        with (
            mock.patch.object(plain.broker, "try_to_find_topics", find),
            mock.patch.object(SoloCluster, "is_shared", new=True),
        ):
            work = SERVED[FETCH_API.key].guard.check(context, request, fetch)
            answer: FetchResponse = await cast("Coroutine[Any, Any, FetchResponse]", work)
    assert looked_up == ["open"]
    codes = {topic.topic: topic.partitions[0].error_code for topic in answer.responses}
    assert codes == {
        "open": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "hidden": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        "missing": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }


@pytest.mark.parametrize("is_shorter", [False, True], ids=["with other records", "that ends earlier"])
@pytest.mark.parametrize("is_in_session", [False, True])
async def test_a_client_is_told_of_a_history_that_began_during_the_wait_not_of_its_records(
    tmp_path: Path, is_in_session: bool, is_shorter: bool
) -> None:
    async with kafka_listener(tmp_path) as listener:
        broker = listener.broker
        await broker.create_topic("orders")
        context = Context(listener=listener, version=12, client_id="", client_host="127.0.0.1")
        epoch = 3

        def current_epoch(topic: str, partition: int) -> int:
            return epoch

        partition = FetchPartition(
            partition=0, current_leader_epoch=epoch, fetch_offset=0, partition_max_bytes=1000
        )
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=1000,
            session_epoch=0 if is_in_session else -1,
            topics=[FetchTopic(topic="orders", partitions=[partition])],
        )
        with (
            mock.patch.object(broker, "leader_epoch", current_epoch),
            mock.patch.object(broker, "oldest_leader_epoch", current_epoch),
        ):
            if is_in_session:
                begun = await _answer(fetch(context, request))
                request = replace(request, session_id=begun.session_id, session_epoch=1, topics=[])
            waiting = asyncio.create_task(_answer(fetch(context, replace(request, max_wait_ms=60_000))))
            waiters = broker._engine.waiters
            while not any(waiters._by_partition.values()):
                await pause()
            read = broker.read

            async def read_in_another_history(wanted: list[PartitionFetch], **options: Any) -> Any:
                nonlocal epoch
                epoch = 4
                if is_shorter:
                    # Out of range, upon which a client would begin anew instead of finding where the logs diverge.
                    wanted = [replace(one, offset=99) for one in wanted]
                return await read(wanted, **options)

            with (
                mock.patch.object(broker, "fetch_now", return_value=None),
                mock.patch.object(broker, "read", read_in_another_history),
            ):
                if not is_in_session:
                    epoch = 4
                broker.produce("orders", 0, batch_of([b"of the new history"]), acks=Acks.LEADER)
                answer = await waiting
    (topic,) = answer.responses
    assert topic.partitions[0].error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert not topic.partitions[0].records
