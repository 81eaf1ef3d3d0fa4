"""A list of many objects takes several turns of the event loop, whatever part of it is returned."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from app.broker.listeners import ConnectionView
from app.broker.placement import Placement
from app.clock import SystemClock
from app.groups.base.messages import CommitRequest, OffsetToCommit
from app.work_budget import PARTITIONS_PER_TURN
from tests.support.http_application import application

TURNS = 8
COUNT = (TURNS + 1) * PARTITIONS_PER_TURN


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[FastAPI]:
    async with application(tmp_path, SystemClock()) as app:
        yield app


async def answer_in_turns(app: FastAPI, path: str) -> tuple[Any, int]:
    """Return an answer, and how many turns of the loop it took."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(count())
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://broker") as http:
        answer = await http.get(path)
    counting.cancel()
    assert answer.status_code == 200
    return answer.json(), turns


async def test_few_of_many_groups_are_listed_in_several_turns(app: FastAPI) -> None:
    state = app.state.stele
    await state.broker.create_topic("orders", placement=Placement(partitions=1))
    for number in range(COUNT):
        offset = OffsetToCommit(topic="orders", partition=0, offset=0)
        await state.groups.of("").coordinator.commit(CommitRequest(group=f"g{number:04}", offsets=[offset]))
    few, turns = await answer_in_turns(app, "/v1/groups?limit=2")
    assert [group["group"] for group in few["groups"]] == ["g0000", "g0001"]
    assert few["total"] == COUNT
    assert turns >= TURNS
    everything, turns = await answer_in_turns(app, "/v1/groups")
    assert len(everything["groups"]) == COUNT
    assert turns >= 2 * TURNS, "to find them, and to describe them"


async def test_the_partitions_of_a_group_are_described_in_several_turns(app: FastAPI) -> None:
    state = app.state.stele
    await state.broker.create_topic("orders", placement=Placement(partitions=COUNT))
    offsets = [OffsetToCommit(topic="orders", partition=number, offset=0) for number in range(COUNT)]
    await state.groups.of("").coordinator.commit(CommitRequest(group="wide", offsets=offsets))
    group, turns = await answer_in_turns(app, "/v1/groups/wide")
    assert len(group["partitions"]) == COUNT
    assert turns >= TURNS


async def test_few_of_many_topics_are_listed_in_several_turns(app: FastAPI) -> None:
    broker = app.state.stele.broker
    for number in range(COUNT):
        await broker.create_topic(f"t{number:04}", placement=Placement(partitions=1))
    few, turns = await answer_in_turns(app, "/v1/topics?limit=2&search=t")
    assert [topic["name"] for topic in few["topics"]] == ["t0000", "t0001"]
    assert few["total"] == COUNT
    assert turns >= TURNS
    everything, turns = await answer_in_turns(app, "/v1/topics")
    assert len(everything["topics"]) == COUNT
    assert turns >= 2 * TURNS, "to find them, and to describe them"


async def test_few_of_many_connections_are_listed_in_several_turns(
    app: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    (listener,) = app.state.stele.sampler.listeners

    def views() -> Iterator[ConnectionView]:
        for number in range(COUNT):
            yield ConnectionView(
                protocol="http", peer=f"peer-{number}", age_ms=number, bytes_in=0, bytes_out=0
            )

    monkeypatch.setattr(listener, "connection_views", views)
    few, turns = await answer_in_turns(app, "/v1/connections?limit=2")
    assert [view["peer"] for view in few["connections"]] == [f"peer-{COUNT - 1}", f"peer-{COUNT - 2}"]
    assert few["total"] == COUNT
    assert turns >= TURNS
