"""While the broker shuts down, clients get codes after which they ask another broker, and not BROKER_NOT_AVAILABLE."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.metadata import MetadataRequest, MetadataRequestTopic
from stele.wire.kafka.offsets import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from stele.wire.kafka.topics import CreatableTopic, CreateTopicsRequest
from stele.wire.kafka.transactions import InitProducerIdRequest

from app.broker.placement import Placement
from tests.support.fetches import connected
from tests.support.kafka_application import kafka_listener
from tests.support.kafka_peer import api_of, read_response, request_frame

CREATE = CreateTopicsRequest(
    topics=[CreatableTopic(name="new", num_partitions=1, replication_factor=1, assignments=(), configs=())]
)
DELETE = DeleteRecordsRequest(
    topics=[
        DeleteRecordsTopic(name="orders", partitions=[DeleteRecordsPartition(partition_index=0, offset=0)])
    ],
    timeout_ms=1000,
)
ANY_METADATA = MetadataRequest(topics=[MetadataRequestTopic(name="new")], allow_auto_topic_creation=True)
IDEMPOTENT = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)


def code_of_topic(answer: Any) -> int:
    return answer.topics[0].error_code


def code_of_partition(answer: Any) -> int:
    return answer.topics[0].partitions[0].error_code


def code_of_all(answer: Any) -> int:
    return answer.error_code


@pytest.mark.parametrize(
    ("asked", "version", "code_of", "code"),
    [
        pytest.param(CREATE, 5, code_of_topic, ErrorCode.NOT_CONTROLLER, id="CreateTopics"),
        pytest.param(DELETE, 2, code_of_partition, ErrorCode.NOT_LEADER_OR_FOLLOWER, id="DeleteRecords"),
        pytest.param(ANY_METADATA, 8, code_of_topic, ErrorCode.LEADER_NOT_AVAILABLE, id="Metadata"),
        pytest.param(IDEMPOTENT, 2, code_of_all, ErrorCode.COORDINATOR_NOT_AVAILABLE, id="InitProducerId"),
    ],
)
async def test_a_closing_broker_sends_clients_elsewhere(
    tmp_path: Path, asked: object, version: int, code_of: Callable[[Any], int], code: ErrorCode
) -> None:
    async with kafka_listener(tmp_path) as listener, connected(listener) as send:
        await listener.broker.create_topic("orders", placement=Placement(partitions=1))
        listener.broker.begin_close()
        frame = await send(request_frame(asked, version))
        _, answer = read_response(frame, api_of(asked), version)
        assert code_of(answer) == code
