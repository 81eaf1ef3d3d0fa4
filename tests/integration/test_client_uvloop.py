"""The asyncio client runs on uvloop, whose transports are no subclasses of those of asyncio."""

from __future__ import annotations

from pathlib import Path

import pytest
import uvloop
from stele import AsyncClient, AsyncProducer
from stele.broker_process import run_broker


@pytest.mark.parametrize("protocol", ["binary", "http"])
def test_a_record_is_stored_and_read(protocol: str, tmp_path: Path) -> None:
    async def store_and_read(url: str) -> list[bytes | None]:
        async with AsyncClient(url) as client, AsyncProducer(client, "orders") as producer:
            await producer.send_and_wait(b"first")
            return [record.value for record in (await client.fetch("orders")).records]

    with run_broker(tmp_path) as broker:
        url = broker.binary_url if protocol == "binary" else broker.http_url
        assert uvloop.run(store_and_read(url)) == [b"first"]
