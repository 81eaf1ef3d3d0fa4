"""What is left of an open transaction over HTTP when the power goes."""

from __future__ import annotations

from pathlib import Path
from random import Random

from app.storage.topic_partition import TopicPartition
from tests.support.engines import segment_path
from tests.support.served_bench import serving
from tests.support.simulated_time import simulated


@simulated
async def test_records_that_were_taken_into_a_transaction_survive_a_power_cut(tmp_path: Path) -> None:
    """The next request of the transaction would be committed without them."""
    async with serving(tmp_path) as (bench, _, http):
        begun = await http.post("/v1/transactions/job/begin")
        producer = {name: begun.headers[name] for name in ("Producer-Id", "Producer-Epoch")}
        records = [{"topic": "orders", "partition": number, "value": f"value-{number}"} for number in (0, 2)]
        added = await http.post("/v1/transactions/job/records", json={"records": records}, headers=producer)
        assert added.status_code == 200, added.text
        for seed in range(20):
            disk = bench.files.power_cut(Random(seed))
            for number in (0, 2):
                path = segment_path(0, name=TopicPartition("orders", number))
                assert f"value-{number}".encode() in disk.content(path), seed
