"""Requests with one large value: what takes long is done in slices or by threads."""

from __future__ import annotations

import base64
import json
import threading
from pathlib import Path

import httpx
import pytest
from stele.wire import record_batch as rb

from app.api.records import upload
from app.broker.broker import Broker
from app.broker.reading.fetch import PartitionFetch, records_from
from app.clock import SystemClock
from tests.support.http_application import application

TEXT = 'aé "b\n' * 700_000
BYTES = bytes(range(256)) * 16_000
RECORDS = {
    "text": (json.dumps({"key": "k", "value": TEXT}), TEXT.encode()),
    "bytes": (json.dumps({"key": "k", "value_b64": base64.b64encode(BYTES).decode()}), BYTES),
    "object": (json.dumps({"key": "k", "value": [TEXT]}), json.dumps([TEXT]).encode()),
}


async def stored(broker: Broker) -> list[tuple[bytes | None, bytes | None]]:
    records: list[tuple[bytes | None, bytes | None]] = []
    end = broker.log_state("orders", 0).high_watermark
    while len(records) < end:
        request = PartitionFetch(topic="orders", partition=0, offset=len(records), max_bytes=1)
        (fetched,) = await broker.fetch([request], max_bytes=1)
        records += [(r.key, r.value) for part in records_from(fetched, len(records)) for r in part]
    return records


@pytest.mark.parametrize("content", RECORDS)
@pytest.mark.parametrize(
    "media_type", ["application/json", "application/x-ndjson", "application/octet-stream"]
)
@pytest.mark.parametrize("producer_id", [None, "7"])
async def test_a_large_record_is_stored_as_sent_and_built_by_a_thread(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    content: str,
    media_type: str,
    producer_id: str | None,
) -> None:
    threads: list[threading.Thread] = []
    build = upload.build_lone

    def noted(row: rb.Row, **identity: int) -> bytearray:
        threads.append(threading.current_thread())
        return build(row, **identity)

    monkeypatch.setattr(upload, "build_lone", noted)
    record, value = RECORDS[content]
    small = json.dumps({"key": "k", "value": "small"})
    body: str | bytes = record
    expected = [(b"k", value)]
    if media_type == "application/json":
        body = f'{{"records":[{record}]}}'
    elif media_type == "application/octet-stream":
        body = value
    elif producer_id is None:
        body = f"{small}\n \n{record}\n{record}\n{small}"
        expected = [(b"k", b"small"), *2 * expected, (b"k", b"small")]
    headers = {"Content-Type": media_type, "Record-Key": "k"}
    if producer_id is not None:
        headers |= {"Producer-Id": producer_id, "Producer-Epoch": "0", "Producer-Sequence": "0"}
    async with application(
        tmp_path, SystemClock(), request_body_bytes_max=64 << 20, ndjson_line_bytes_max=64 << 20
    ) as app:
        broker: Broker = app.state.stele.broker
        await broker.create_topic("orders", partitions=1, configs={"max.message.bytes": str(64 << 20)})
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            for _ in range(1 if producer_id is None else 2):
                answer = await client.post("/v1/topics/orders/records", content=body, headers=headers)
                assert answer.status_code == 200, answer.text[:1000]
        assert await stored(broker) == expected
    assert threads
    assert threading.main_thread() not in threads
