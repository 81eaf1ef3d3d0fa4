"""Work on a topic with thousands of partitions pauses, so that other requests are served."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.api.application import create_application
from app.composition import open_broker, open_groups, open_transactions
from app.settings import Settings
from app.storage.embedded import EmbeddedEngine
from app.storage.waiters import Waiters
from app.work_budget import PARTITIONS_PER_TURN
from tests.support.turns import CallsPerTurn

PARTITIONS = 5000


@pytest.fixture
async def http(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    settings = Settings(data_dir=tmp_path)
    broker = await open_broker(settings)
    groups = await open_groups(broker)
    transactions = await open_transactions(broker, groups)
    await broker.create_topic("orders", partitions=PARTITIONS, configs={"stele.storage": "memory"})
    transport = httpx.ASGITransport(create_application(broker, groups, transactions, settings))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client
    await transactions.close()
    await groups.close()
    await broker.close()


@pytest.mark.parametrize(
    "path", ["/v1/topics/orders", "/v1/topics?sizes=true", "/v1/topics/orders/search?format=ndjson"]
)
async def test_the_loop_turns_while_its_partitions_are_looked_at(http: httpx.AsyncClient, path: str) -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(count())
    answer = await http.get(path)
    counting.cancel()
    assert answer.status_code == 200
    assert turns >= PARTITIONS // 100


async def test_changes_of_the_topic_visit_some_partitions_in_each_turn(
    http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def counted(owner: type, name: str) -> CallsPerTurn[..., Any]:
        calls: CallsPerTurn[..., Any] = CallsPerTurn(getattr(owner, name))

        def call(*given: object) -> object:
            return calls(*given)

        monkeypatch.setattr(owner, name, call)
        return calls

    configured, woken = counted(EmbeddedEngine, "configure"), counted(Waiters, "wake")
    changed = await http.patch("/v1/topics/orders", json={"configs": {"retention.ms": "1000"}})
    assert changed.is_success, changed.text
    deleted = await http.delete("/v1/topics/orders")
    assert deleted.is_success, deleted.text
    for calls in (configured, woken):
        assert calls.total == PARTITIONS
        assert calls.most <= PARTITIONS_PER_TURN
