"""Requests with many elements are read in steps, between which other connections are served."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from stele.wire.kafka.api import Api
from stele.wire.kafka.api_versions import API_VERSIONS_API, ApiVersionsRequest
from stele.wire.kafka.groups import FIND_COORDINATOR_API, FindCoordinatorRequest
from stele.wire.schema import ELEMENTS_PER_READ, MalformedMessage

from app.tcp.kafka.apis import SERVED
from app.work_budget import Steps, at_once
from tests.support.kafka_application import kafka_listener, served
from tests.support.kafka_peer import read_response, request_body, request_frame
from tests.support.random_messages import random_message

APIS = [pytest.param(row.api, id=row.api.name) for row in SERVED.values()]
VERSION = FIND_COORDINATOR_API.versions[1]
STEPS = 40
LONG = FindCoordinatorRequest(
    coordinator_keys=[f"group-{number}" for number in range(STEPS * ELEMENTS_PER_READ)]
)


def outcome(read: Callable[[], Any]) -> Any:
    """Return the message, or why it cannot be read."""
    try:
        return read()
    except MalformedMessage as error:
        return str(error)


@pytest.mark.parametrize("api", APIS)
def test_the_message_or_its_refusal_is_that_of_one_step(api: Api) -> None:
    chance = random.Random(api.key)
    for version in api.versions:
        for _ in range(20):
            body = request_body(random_message(api.request, version, chance), version)
            for part in (body, body[: chance.randint(0, len(body))]):
                whole = outcome(partial(api.read_request, version, part))
                in_steps = outcome(partial(at_once, api.read_request_in_steps(version, part)))
                assert in_steps == whole


def test_a_step_has_a_bounded_number_of_elements() -> None:
    steps: Steps[Any] = FIND_COORDINATOR_API.read_request_in_steps(VERSION, request_body(LONG, VERSION))
    assert sum(1 for _ in steps) == STEPS


async def frame_of(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(4)))


async def test_another_connection_is_served_while_a_long_request_is_read(tmp_path: Path) -> None:
    async with kafka_listener(tmp_path) as listener, served(listener) as address:
        long_reader, long_writer = await asyncio.open_connection(*address)
        reader, writer = await asyncio.open_connection(*address)
        long_writer.write(request_frame(LONG, VERSION))
        long = asyncio.create_task(frame_of(long_reader))
        writer.write(request_frame(ApiVersionsRequest(), 0))
        await frame_of(reader)
        assert not long.done()
        _, response = read_response(await long, FIND_COORDINATOR_API, VERSION)
        assert [found.key for found in response.coordinators] == LONG.coordinator_keys
        writer.close()
        long_writer.close()


async def test_the_requests_around_a_long_one_are_answered_in_order_although_the_client_sends_no_more(
    tmp_path: Path,
) -> None:
    async with kafka_listener(tmp_path) as listener, served(listener) as address:
        reader, writer = await asyncio.open_connection(*address)
        short = request_frame(ApiVersionsRequest(), 0)
        writer.write(short + request_frame(LONG, VERSION) + short)
        writer.write_eof()
        read_response(await frame_of(reader), API_VERSIONS_API, 0)
        _, found = read_response(await frame_of(reader), FIND_COORDINATOR_API, VERSION)
        assert len(found.coordinators) == len(LONG.coordinator_keys)
        read_response(await frame_of(reader), API_VERSIONS_API, 0)
        assert not await reader.read()
        writer.close()


async def test_a_long_request_that_ends_too_early_ends_its_connection_after_the_answers_to_earlier_ones(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with kafka_listener(tmp_path) as listener, served(listener) as address:
        reader, writer = await asyncio.open_connection(*address)
        short, long = request_frame(ApiVersionsRequest(), 0), request_frame(LONG, VERSION)[4:-3]
        writer.write(short + len(long).to_bytes(4) + long + short)
        read_response(await frame_of(reader), API_VERSIONS_API, 0)
        assert not await reader.read()
        assert f"FindCoordinator v{VERSION} cannot be read" in caplog.text
        writer.close()
