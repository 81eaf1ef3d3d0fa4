"""What operators do with transactions over HTTP, on a broker with a simulated disk and clock."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.served_bench import serving
from tests.support.simulated_time import simulated
from tests.support.transactions import TransactionBench


async def listed(http: httpx.AsyncClient, **filters: Any) -> list[str]:
    answer = await http.get("/v1/transactions", params=filters)
    assert answer.status_code == 200, answer.text
    return [one["transactional_id"] for one in answer.json()["transactions"]]


def forget(bench: TransactionBench, transactional_id: str) -> None:
    """Make the open transaction of an id hang, as if the coordinator had lost it."""
    transaction = bench.transactions._table.find(transactional_id)  # pyright: ignore[reportPrivateUsage]
    assert transaction is not None
    bench.transactions._table.remove(transaction)  # pyright: ignore[reportPrivateUsage]


@simulated
async def test_transactions_are_listed_by_state_age_and_name(tmp_path: Path) -> None:
    async with serving(tmp_path) as (bench, _, http):
        for name in ("late/1", "early", "idle"):
            await bench.begin(name)
        started: dict[str, int] = {}
        for name in ("early", "late/1"):
            producer = await bench.begin(name)
            bench.produce(producer, 0, b"x", transactional_id=name)
            started[name] = bench.clock.now_ms()
            await asyncio.sleep(5)

        document = (await http.get("/v1/transactions")).json()
        assert (document["open"], document["total"], document["next_after"]) == (2, 3, None)
        assert [
            (one["transactional_id"], one["state"], one["started_at"]) for one in document["transactions"]
        ] == [
            ("early", "Ongoing", started["early"]),
            ("idle", "Empty", None),
            ("late/1", "Ongoing", started["late/1"]),
        ]
        assert await listed(http, order="oldest") == ["early", "late/1", "idle"]
        assert await listed(http, state="Ongoing,PrepareAbort") == ["early", "late/1"]
        assert await listed(http, min_duration_ms=5000) == ["early"]
        assert await listed(http, pattern="(e.*|idle)") == ["early", "idle"]
        assert await listed(http, search="TE/") == ["late/1"]
        assert await listed(http, limit=1, after="early") == ["idle"]
        assert await listed(http, limit=2, page=2, order="oldest") == ["idle"]
        assert (await http.get("/v1/transactions?limit=2")).json()["next_after"] == "idle"


@pytest.mark.parametrize(
    "query",
    [
        "state=Nonsense",
        "pattern=(",
        "order=age",
        "order=oldest&after=a",
        "limit=0",
        "limit=10001",
        "min_duration_ms=x",
    ],
)
@simulated
async def test_a_filter_that_makes_no_sense_is_refused(tmp_path: Path, query: str) -> None:
    async with serving(tmp_path) as (_, _, http):
        answer = await http.get(f"/v1/transactions?{query}")
        assert answer.status_code == 400
        assert answer.json()["detail"].startswith(
            query.partition("=")[0].replace("order", "") or ("order", "after")
        )


@simulated
async def test_a_forgotten_transaction_is_found_from_its_topic_and_aborted(tmp_path: Path) -> None:
    async with serving(tmp_path) as (bench, _, http):
        name = "etl/1%"
        producer = await bench.begin(name)
        since = bench.clock.now_ms()
        bench.produce(producer, 1, b"a", transactional_id=name)
        await asyncio.sleep(1)
        other = await bench.begin("other")
        bench.produce(other, 1, b"b", transactional_id="other")

        partitions = (await http.get("/v1/topics/orders")).json()["partitions"]
        assert [one["held_back_by"] for one in partitions] == [
            None,
            {"transactional_id": name, "producer_id": producer.producer_id, "since": since},
            None,
        ]
        document = (await http.get("/v1/topics/orders/partitions/1/transactions")).json()
        assert (document["last_stable_offset"], document["high_watermark"]) == (0, 2)
        assert [
            (one["transactional_id"], one["holds_back"], one["hanging"]) for one in document["transactions"]
        ] == [
            (name, True, False),
            ("other", False, False),
        ]
        path = "/v1/transactions/etl%2F1%25"
        described = (await http.get(path)).json()
        assert described["state"] == "Ongoing"
        assert (described["producer_id"], described["started_at"]) == (producer.producer_id, since)
        assert described["partitions"] == [
            {"topic": "orders", "partition": 1, "first_offset": 0, "holds_back": True}
        ]

        assert (await http.delete(path)).status_code == 204
        described = (await http.get(path)).json()
        assert (described["state"], described["started_at"], described["partitions"]) == (
            "CompleteAbort",
            None,
            [],
        )
        assert described["producer_epoch"] > producer.epoch, "the producer is not fenced"
        assert bench.stable_offsets()[1][0] == 1, "the other transaction is aborted, too"
        assert (await http.delete(path)).status_code == 204


@simulated
async def test_what_hangs_is_listed_and_aborted_in_its_partition(tmp_path: Path) -> None:
    async with serving(tmp_path) as (bench, _, http):
        known, lost = await bench.begin("known"), await bench.begin("lost")
        last_batch = bench.clock.now_ms()
        bench.produce(lost, 2, b"a", transactional_id="lost")
        await asyncio.sleep(60)
        bench.produce(known, 0, b"b", transactional_id="known")
        forget(bench, "lost")

        row = {
            "topic": "orders",
            "partition": 2,
            "transactional_id": None,
            "producer_id": lost.producer_id,
            "producer_epoch": lost.epoch,
            "first_offset": 0,
            "since": last_batch,
            "hanging": True,
            "holds_back": True,
        }
        answer = (await http.get("/v1/open-transactions?hanging=true")).json()
        assert (answer["total"], answer["transactions"]) == (1, [row])
        both = (await http.get("/v1/open-transactions?topic=orders&limit=1")).json()
        assert (both["total"], both["transactions"]) == (2, [row])
        assert (await http.get("/v1/open-transactions?topic=missing")).status_code == 404

        path = "/v1/topics/orders/partitions/2/transactions"
        assert (await http.delete(f"{path}/{lost.producer_id}")).status_code == 204
        assert bench.stable_offsets()[2] == (2, 2)
        assert bench.stable_offsets()[0] == (0, 1), "what the coordinator knows stays open"
        again = await http.delete(f"{path}/{lost.producer_id}")
        assert (again.status_code, again.json()["type"]) == (409, "/problems/invalid-transaction-state")
        known_path = f"/v1/topics/orders/partitions/0/transactions/{known.producer_id}"
        assert (await http.delete(known_path)).status_code == 204
        assert (await http.get("/v1/transactions/known")).json()["state"] == "CompleteAbort"


@simulated
async def test_what_does_not_exist_is_not_found(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, _, http):
        for path in (
            "/v1/transactions/nobody",
            "/v1/topics/missing/partitions/0/transactions",
            "/v1/topics/orders/partitions/9/transactions",
        ):
            assert (await http.get(path)).status_code == 404, path
        assert (await http.delete("/v1/transactions/nobody")).status_code == 404
        assert (await http.delete("/v1/topics/orders/partitions/0/transactions/x")).status_code == 404


@simulated
async def test_metrics_show_what_is_open_and_what_it_holds_back(tmp_path: Path) -> None:
    async with serving(tmp_path) as (bench, app, http):

        async def metrics() -> dict[str, float]:
            await app.state.stele.sampler.sample()
            lines = (await http.get("/metrics")).text.splitlines()
            names = ("stele_transaction", "stele_last_stable_offset")
            samples = dict(line.split() for line in lines if line.startswith(names))
            return {name: float(value) for name, value in samples.items() if not name.endswith("_created")}

        ended = await bench.begin("ended")
        bench.produce(ended, 0, b"x", transactional_id="ended")
        ended = await bench.end(ended, transactional_id="ended")
        bench.produce(ended, 0, b"x", transactional_id="ended")
        await bench.end(ended, transactional_id="ended", commit=False)
        lost, known = await bench.begin("lost"), await bench.begin("known")
        bench.produce(lost, 1, b"x", transactional_id="lost")
        forget(bench, "lost")
        await asyncio.sleep(3)
        bench.produce(known, 1, b"x", transactional_id="known")
        bench.produce(known, 2, b"x", transactional_id="known")
        await asyncio.sleep(4)
        assert await metrics() == {
            "stele_transactions_committed_total": 1,
            "stele_transactions_aborted_total": 1,
            "stele_transactions_timed_out_total": 0,
            "stele_transactional_ids": 2,
            "stele_transactions_open": 1,
            "stele_transactions_oldest_seconds": 4,
            "stele_transactions_hanging": 1,
            "stele_last_stable_offset_held_partitions": 2,
            "stele_last_stable_offset_hold_seconds": 7,
        }
