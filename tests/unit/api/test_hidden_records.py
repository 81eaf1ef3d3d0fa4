"""Reads over many aborted transactions: each batch is looked at a few times, and few in one turn of the event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from stele.wire import record_batch as rb

from app.api.records.page import PageRoom, read_page
from app.broker.broker import Broker
from app.broker.producing.produce import Acks
from app.broker.reading.fetch import PartitionFetch
from app.clock import SystemClock
from app.query.tail_reads import TailSlice
from app.query.tailing import Tail
from app.storage.segments.transaction_index import AbortedEntry, TransactionIndex
from app.work_budget import PARTITIONS_PER_TURN
from tests.support.aborted import append_aborted
from tests.support.http_application import application
from tests.support.turns import CallsPerTurn

TRANSACTIONS = 1500
END = 2 * TRANSACTIONS
PAGE = "/v1/topics/orders/partitions/0/records"
POLL = {"topics": ["orders"], "from": "earliest"}


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[FastAPI]:
    async with application(tmp_path, SystemClock()) as served:
        broker = served.state.stele.broker
        await broker.create_topic("orders", partitions=1)
        await append_aborted(broker, "orders", TRANSACTIONS)
        yield served


@pytest.fixture
def broker(app: FastAPI) -> Broker:
    return app.state.stele.broker


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch, app: FastAPI) -> CallsPerTurn[..., rb.BatchHeader]:
    """The batches that are checked from now on."""
    counted = CallsPerTurn(rb.check_batch)
    monkeypatch.setattr(rb, "check_batch", counted)
    return counted


def client_of(app: FastAPI) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        pytest.param(f"{PAGE}?limit=10", None, id="page"),
        pytest.param("/v1/topics/orders/search?format=ndjson", None, id="search"),
        pytest.param("/v1/groups/workers/poll", POLL, id="poll"),
    ],
)
async def test_an_empty_answer_checks_each_batch_once_and_few_in_one_turn(
    app: FastAPI, checks: CallsPerTurn[..., rb.BatchHeader], path: str, body: Any
) -> None:
    async with client_of(app) as client:
        answer = await (client.get(path) if body is None else client.post(path, json=body))
    assert answer.status_code == 200, answer.text
    assert b'"value"' not in answer.content
    assert checks.total == END
    assert checks.most <= PARTITIONS_PER_TURN + 1


async def test_a_share_group_looks_at_few_batches_in_one_turn(
    app: FastAPI, checks: CallsPerTurn[..., rb.BatchHeader]
) -> None:
    async with client_of(app) as client:
        answer = await client.post("/v1/groups/queue/share/poll", json=POLL)
    assert len(answer.json()["records"]) == 100, "it reads uncommitted records, too"
    assert checks.total >= END
    assert checks.most <= 2 * PARTITIONS_PER_TURN


async def test_a_page_ends_after_hidden_batches_and_holds_none_of_them(broker: Broker) -> None:
    request, room = PartitionFetch(topic="orders", partition=0, offset=0, max_bytes=2**20), PageRoom()
    page = await read_page(
        broker,
        request,
        limit=10,
        min_bytes=1,
        wait_ms=0,
        is_whole=False,
        reader=broker.decoded.reader(),
        room=room,
    )
    assert page.next_offset == page.last_stable_offset == page.high_watermark == END
    assert page.pieces == []
    assert room.in_use == 0


async def test_a_tail_passes_over_hidden_batches_a_few_in_one_turn(broker: Broker) -> None:
    passed = CallsPerTurn(dict[int, int].__setitem__)

    class Positions(dict[int, int]):
        def __setitem__(self, partition: int, offset: int) -> None:
            passed(self, partition, offset)

    broker.produce("orders", 0, rb.build_values([b"shown"], 1_000), acks=Acks.LEADER)
    steps = Tail(broker, "orders", Positions({0: 0}), only=0, is_scan=False, idle_s=60.0).records()
    partition, shown = await anext(steps)
    assert isinstance(shown, TailSlice)
    assert (partition, [record.value for record in shown.records]) == (0, [b"shown"])
    await steps.aclose()
    assert passed.total == END + 1
    assert passed.most <= PARTITIONS_PER_TURN + 1


async def test_a_read_looks_only_at_the_aborted_transactions_of_its_batches(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []
    entry_of = TransactionIndex.__getitem__

    def entry(index: TransactionIndex, number: int) -> AbortedEntry:
        looked.append(number)
        return entry_of(index, number)

    monkeypatch.setattr(TransactionIndex, "__getitem__", entry)
    request = PartitionFetch(topic="orders", partition=0, offset=0, max_bytes=1)
    (read,) = await broker.fetch([request], max_bytes=1)
    assert [(aborted.first_offset, aborted.last_offset) for aborted in read.aborted or ()] == [(0, 1)]
    assert looked == [0]
