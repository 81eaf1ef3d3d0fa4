"""A topic that is deleted while a request waits is an unknown topic, at whichever wait that happens.

A topic that another broker has deleted is gone between the look-up of its name and the use of its partition; on one
broker the same happens while a request waits for a disk or a thread.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest
from stele.wire.error_codes import ErrorCode

from app.broker.placement import Placement
from app.broker.producing.produce import Acks
from app.tcp.deferred_response import DeferredResponse
from app.tcp.kafka.apis import SERVED, Served
from app.tcp.kafka.context import Context, KafkaListener, NoResponse
from app.tcp.kafka.failures import failure_of
from app.work_budget import at_once
from tests.support.batches import batch_of
from tests.support.deletions import DeletedAt, delete_topic, far_away
from tests.support.kafka_application import kafka_listener
from tests.support.kafka_wire import codes_of
from tests.support.sample_messages import TOPIC, sample

ROWS = [pytest.param(row, id=row.api.name) for row in SERVED.values()]
# Far more than any request waits.
POINTS_MAX = 200


async def make_topic(at: KafkaListener) -> bytes:
    if at.broker.has_topic(TOPIC):
        await at.broker.delete_topic(TOPIC)
    topic = await at.broker.create_topic(TOPIC, placement=Placement(partitions=1))
    at.broker.produce(TOPIC, 0, batch_of([b"a", b"b"]), acks=Acks.LEADER)
    return topic.topic_id.bytes


async def answer_of(at: KafkaListener, row: Served, version: int, request: Any) -> Any:
    """Handle a request as a connection does."""
    context = Context(listener=at, version=version, client_id="", client_host="10.0.0.1")
    try:
        answer = row.handle(context, request)
        if isinstance(answer, Coroutine):
            answer = await cast("Coroutine[Any, Any, Any]", answer)
        if isinstance(answer, DeferredResponse):
            answer = await cast("DeferredResponse[Any]", answer).wait()
    except Exception as error:  # noqa: BLE001 - as the edge of a connection
        counts = at.broker.counts
        answer = at_once(failure_of(row.api, version, request, error, peer="a test", counts=counts))
    return answer


@pytest.mark.every(6)
@pytest.mark.parametrize("is_made_anew", [False, True], ids=["deleted", "made anew"])
@pytest.mark.parametrize("row", ROWS)
async def test_a_topic_deleted_at_any_wait_of_a_request_is_no_mistake_of_the_broker(
    row: Served, is_made_anew: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    version = row.api.versions[1]
    async with kafka_listener(tmp_path) as at:
        at.broker._engine.refresh = far_away  # type: ignore[method-assign]
        for point in count(1):
            topic_id = await make_topic(at)
            request = sample(row.api.request, version, topic_id=topic_id)
            deleted = DeletedAt(point, lambda: delete_topic(at.broker, TOPIC, is_made_anew=is_made_anew))
            answer = await deleted.run(answer_of(at, row, version, request))
            assert isinstance(answer, NoResponse) or ErrorCode.UNKNOWN_SERVER_ERROR not in codes_of(answer), (
                point
            )
            if not deleted.has_deleted:
                break
            assert point < POINTS_MAX
        assert (at.broker.counts.internal_errors, caplog.records) == (0, [])
