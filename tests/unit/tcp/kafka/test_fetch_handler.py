"""A fetch looks for topics of other brokers only if its client may read them."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from unittest import mock

from stele.wire.error_codes import ErrorCode

from app.security.acl import Acl, Operation, ResourceType
from app.security.policy import ListenerSecurity
from app.security.principal import ANONYMOUS
from app.tcp.kafka.guards.table import GUARDS
from app.tcp.kafka.handlers.context import Context
from app.tcp.kafka.handlers.fetch import fetch
from app.tcp.kafka.schemas.fetch import API, FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tests.support.acls import authorizer_over
from tests.support.kafka_application import kafka_listener


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
        with mock.patch.object(plain.broker, "try_to_find_topics", find):
            work = GUARDS[API.key].check(context, request, fetch)
            answer: FetchResponse = await cast("Coroutine[Any, Any, FetchResponse]", work)
    assert looked_up == ["open"]
    codes = {topic.topic: topic.partitions[0].error_code for topic in answer.responses}
    assert codes == {
        "open": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "hidden": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        "missing": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
