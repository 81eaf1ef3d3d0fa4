"""A topic that is deleted, or created again, while a request waits causes no internal error, at any wait."""

from __future__ import annotations

import json
import logging
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest
from stele.wire import record_batch as rb

from app.broker.broker import Broker
from app.broker.placement import Placement
from app.broker.producing.produce import Acks
from tests.support.deletions import DeletedAt, delete_topic, far_away
from tests.support.listeners import listeners

TOPIC, GROUP = "orders", "group"
# Far more than any request waits.
POINTS_MAX = 300
OPERATIONS = json.loads(Path("tests/golden/openapi.json").read_text())["document"]["paths"]
PATH_VALUES = {
    "topic": TOPIC,
    "group": GROUP,
    "partition": "0",
    "offset": "1",
    "key": "k",
    "producer_id": "1",
    "transactional_id": "t",
}
OWNER = {"member_id": "m", "generation": 1}
# What operations about a topic, and those whose body names one, get beside their path.
BESIDE: dict[str, dict[str, Any]] = {
    "PUT /v1/topics/{topic}": {"json": {"partitions": 1}},
    "PATCH /v1/topics/{topic}": {"json": {"partitions": 2, "configs": {"retention.ms": "1000"}}},
    "POST /v1/topics/{topic}/records": {"json": {"records": [{"key": "k", "value": "a"}]}},
    "DELETE /v1/topics/{topic}/partitions/{partition}/records": {"params": {"before": 1}},
    "GET /v1/topics/{topic}/partitions/{partition}/offsets": {"params": {"at": "1000"}},
    "POST /v1/topics/{topic}/search": {"json": {"ranges": []}},
    "PUT /v1/groups/{group}/offsets": {"json": {"offsets": [{"topic": TOPIC, "partition": 0, "offset": 1}]}},
    "PUT /v1/groups/{group}/partitions/{topic}/{partition}/owner": {"json": OWNER},
    "DELETE /v1/groups/{group}/partitions/{topic}/{partition}/owner": {"params": OWNER},
    "PUT /v1/groups/{group}/partitions/{topic}/{partition}/offset": {"json": {**OWNER, "offset": 1}},
    "POST /v1/transactions": {"json": {"records": [{"topic": TOPIC, "key": "k", "value": "a"}]}},
    "POST /v1/groups/{group}/poll": {"json": {"topics": [TOPIC], "lease_ms": 1000}},
    "POST /v1/groups/{group}/share/poll": {"json": {"topics": [TOPIC]}},
    "GET /v1/overview": {},
    "GET /v1/topics": {"params": {"sizes": "true"}},
}
# They follow the topic, and so end with it only.
STREAMS = {"GET /v1/topics/{topic}/records", "GET /v1/topics/{topic}/table"}
ABOUT_TOPICS = sorted(
    {
        f"{method.upper()} {path}"
        for path, methods in OPERATIONS.items()
        for method in methods
        if "{topic}" in path and method in ("get", "put", "post", "patch", "delete")
    }
    - STREAMS
    | {operation for operation in BESIDE if operation.split(" ")[1] in OPERATIONS}
)


def append(broker: Broker) -> None:
    builder = rb.BatchBuilder()
    for _ in range(2):
        builder.append(timestamp_ms=1_000, key=b"k", value=b"a")
    broker.produce(TOPIC, 0, builder.build(), acks=Acks.LEADER)


@pytest.mark.every(6)
@pytest.mark.parametrize("is_made_anew", [False, True], ids=["deleted", "made anew"])
@pytest.mark.parametrize("operation", ABOUT_TOPICS)
async def test_a_topic_deleted_at_any_wait_of_a_request_is_no_mistake_of_the_broker(
    operation: str, is_made_anew: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    method, path = operation.format_map({**PATH_VALUES}).split(" ")
    configs = {"cleanup.policy": "compact"}
    async with listeners(tmp_path) as at:
        at.engine.refresh = far_away  # type: ignore[method-assign]

        async def ask() -> httpx.Response:
            return await at.http.request(method, path, **BESIDE.get(operation, {}))

        for point in count(1):
            await at.broker.create_topic(TOPIC, placement=Placement(partitions=1), configs=configs)
            append(at.broker)
            deleted = DeletedAt(point, lambda: delete_topic(at.broker, TOPIC, is_made_anew=is_made_anew))
            answer = await deleted.run(ask())
            assert answer.status_code < 500, (point, answer.text)
            await delete_topic(at.broker, TOPIC)
            if not deleted.has_deleted:
                break
            assert point < POINTS_MAX
        assert (at.broker.counts.internal_errors, caplog.records) == (0, [])


def test_what_is_asked_beside_the_paths_is_documented() -> None:
    assert {operation.split(" ")[1] for operation in BESIDE} <= set(OPERATIONS)
