"""Responses that are written in steps have the bytes of those that are written at once."""

from __future__ import annotations

import random
from typing import Any

import pytest
from stele.wire import schema
from stele.wire.kafka.metadata import (
    METADATA_API,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from stele.wire.schema.compiler import ELEMENTS_PER_STEP

from app.tcp.kafka.apis import SERVED
from app.tcp.kafka.served import Served
from tests.support.random_messages import random_message

WALKS = [row for row in SERVED.values() if row.walks]


def steps_of(row: Served, version: int, response: Any) -> tuple[list[bytes], int]:
    parts: list[bytes | bytearray] = []
    steps = sum(1 for _ in row.encode_in_steps(version, response, 7, parts))
    return [bytes(part) for part in parts], steps


@pytest.mark.parametrize("row", WALKS, ids=lambda row: row.api.name)
def test_the_bytes_are_those_of_one_step(row: Served) -> None:
    chance = random.Random(row.api.key)
    for version in row.api.versions:
        for _ in range(20):
            response = random_message(row.api.response, version, chance)
            at_once = row.encode(version, response, 7)
            assert steps_of(row, version, response)[0] == [bytes(part) for part in at_once]


def test_a_step_has_a_bounded_number_of_elements() -> None:
    partitions = [
        MetadataResponsePartition(
            error_code=0,
            partition_index=number,
            leader_id=0,
            leader_epoch=0,
            replica_nodes=(0,),
            isr_nodes=(0,),
        )
        for number in range(10 * ELEMENTS_PER_STEP)
    ]
    topic = MetadataResponseTopic(
        error_code=0, name="wide", topic_id=schema.NO_UUID, is_internal=False, partitions=partitions
    )
    response = MetadataResponse(
        brokers=[], cluster_id="", controller_id=0, topics=[topic], cluster_authorized_operations=0
    )
    for version in METADATA_API.versions:
        assert steps_of(SERVED[METADATA_API.key], version, response)[1] == 10
