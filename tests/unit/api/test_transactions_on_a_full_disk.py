"""What transactions over HTTP answer while the disk is full, and once it has room again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from app.errors import GroupStoreFailed
from tests.support.served_bench import serving
from tests.support.simulated_files import Fault
from tests.support.simulated_time import simulated

RECORDS = {"records": [{"topic": "orders", "partition": number, "value": "x"} for number in range(3)]}


def problem(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["type"]


FULL = 507, "/problems/storage-full"


# With the first write, there is nothing to abort; with a later one, the marker of the abort finds no room.
@pytest.mark.parametrize("room_for", [0, 1, 2])
@simulated
async def test_each_request_is_told_that_the_disk_is_full(tmp_path: Path, room_for: int) -> None:
    async with serving(tmp_path) as (bench, _, http):
        bench.files.fail(Fault(kinds=("write",), call=room_for + 1, errno=28, times=10**9))
        for _ in range(3):
            assert problem(await http.post("/v1/transactions", json=RECORDS)) == FULL
        bench.files.heal()
        # The marker is tried again from time to time.
        await asyncio.sleep(2)
        answer = await http.post("/v1/transactions", json=RECORDS)
        assert answer.status_code == 200, answer.text
        assert len(await bench.read_committed(0)) == 1


@simulated
async def test_each_request_is_told_that_the_store_fails(tmp_path: Path) -> None:
    async with serving(tmp_path) as (bench, _, http):
        assert (await http.post("/v1/transactions", json=RECORDS)).status_code == 200
        store = bench.groups.table._writer._store  # pyright: ignore[reportPrivateUsage]
        write = store.write

        def fail(changes: object) -> None:
            raise GroupStoreFailed(tmp_path, "a full disk")

        store.write = fail  # type: ignore[method-assign]
        told = [problem(await http.post("/v1/transactions", json=RECORDS)) for _ in range(3)]
        assert told == [told[0]] * 3
        assert told[0] != (504, "/problems/timed-out")
        store.write = write  # type: ignore[method-assign]
        assert (await http.post("/v1/transactions", json=RECORDS)).status_code == 200
        assert len(await bench.read_committed(0)) == 2


@simulated
async def test_an_id_whose_transaction_cannot_be_aborted_does_not_wait_to_begin(tmp_path: Path) -> None:
    async with serving(tmp_path) as (bench, _, http):
        begun = await http.post("/v1/transactions/job/begin")
        producer = {name: begun.headers[name] for name in ("Producer-Id", "Producer-Epoch")}
        path = "/v1/transactions/job"
        assert (await http.post(f"{path}/records", json=RECORDS, headers=producer)).status_code == 200
        await bench.broker.flush()
        bench.files.fail(Fault(kinds=("write",), call=1, errno=28, times=10**9))
        assert problem(await http.post(f"{path}/abort", headers=producer)) == FULL
        assert problem(await http.post(f"{path}/begin")) == FULL
        bench.files.heal()
