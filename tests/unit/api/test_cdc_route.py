"""``POST /v1/cdc`` stores a request for the connector, or says why there is nobody to follow it."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from stele.wire.cdc_requests import Request

from app.api.state import ApiState
from app.cdc.supervisor import CdcSupervisor
from app.clock import SystemClock
from app.settings import Settings
from tests.support.http_application import application

DSN = {"cdc_dsn": "postgresql://nowhere", "cdc_prefix": "shop", "cdc_slot": "one"}
TABLES = {**DSN, "cdc_tables": "orders"}


@asynccontextmanager
async def served(path: Path, **given: Any) -> AsyncGenerator[tuple[httpx.AsyncClient, ApiState]]:
    supervisor = CdcSupervisor(Settings.model_validate(given), "")
    async with application(path, SystemClock(), cdc=supervisor) as app:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
            yield http, app.state.stele


async def test_a_request_is_stored_and_is_a_line_of_the_audit_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "stele.audit")
    async with served(tmp_path, **TABLES) as (http, state):
        body = {"action": "copy", "tables": ["orders", "shop.items"], "where": "name = 'ada'"}
        answer = await http.post("/v1/cdc", json=body)
        assert answer.status_code == 202
        assert answer.json() == {
            **body, "tables": ["public.orders", "shop.items"], "prefix": "shop", "slot": "one",
        }  # fmt: skip
        assert (await http.post("/v1/cdc", json={"action": "drop", "tables": ["a"]})).status_code == 202
        page = await http.get("/v1/topics/__cdc_requests.shop.one/partitions/0/records?from=0")
        assert [json.loads(record["value"]) for record in page.json()["records"]] == [
            msgspec.to_builtins(request)
            for request in (
                Request("copy", "public.orders", "name = 'ada'"),
                Request("copy", "shop.items", "name = 'ada'"),
                Request("drop", "public.a"),
            )
        ]
        topic = state.broker.topic("__cdc_requests.shop.one")
        assert (topic.partitions, topic.config.retention_ms) == (1, -1)
        (connector,) = (await http.get("/v1/cdc")).json()["connectors"]
        assert (connector["prefix"], connector["slot"]) == ("shop", "one")
    lines = [json.loads(record.getMessage()) for record in caplog.records if record.name == "stele.audit"]
    assert [(line["operation"], line["resource"]) for line in lines] == [
        ("cdc-copy", "CdcTable:public.orders"),
        ("cdc-copy", "CdcTable:shop.items"),
        ("cdc-drop", "CdcTable:public.a"),
    ]
    assert "ada" not in caplog.text


@pytest.mark.parametrize(
    "given", [{}, {**DSN, "cdc_channels": "news"}, {**DSN, "cdc_messages": "none", "cdc_channels": "news"}]
)
async def test_without_a_connector_that_follows_tables_it_is_a_conflict(
    tmp_path: Path, given: dict[str, str]
) -> None:
    async with served(tmp_path, **given) as (http, state):
        answer = await http.post("/v1/cdc", json={"action": "add", "tables": ["a"]})
        assert answer.status_code == 409
        assert "STELE_CDC_DSN and STELE_CDC_TABLES" in answer.json()["detail"]
        assert state.broker.topics() == []


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        ({"action": "copy", "tables": ["a"], "where": "true) OR (true"}, 422, "parentheses"),
        ({"action": "copy", "tables": ["a"], "where": "true; DROP TABLE a"}, 422, "may not have ;"),
        ({"action": "add", "tables": ["a"], "where": "true"}, 422, "only copy takes a condition"),
        ({"action": "add", "tables": []}, 422, "1 to 100 tables"),
        ({"action": "add", "tables": ["."]}, 422, "must be SCHEMA.TABLE"),
        ({"action": "truncate", "tables": ["a"]}, 400, "truncate"),
        ({"action": "add"}, 400, "tables"),
        ({"action": "add", "tables": ["a"], "table": "b"}, 400, "unknown field"),
    ],
)
async def test_a_request_that_is_not_valid_is_refused_and_not_stored(
    tmp_path: Path, body: dict[str, Any], status: int, reason: str
) -> None:
    async with served(tmp_path, **TABLES) as (http, state):
        answer = await http.post("/v1/cdc", json=body)
        assert (answer.status_code, reason in answer.json()["detail"]) == (status, True), answer.text
        assert state.broker.topics() == []
