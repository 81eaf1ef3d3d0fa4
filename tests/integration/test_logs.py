"""Log lines that a machine reads, and the id that leads from an answer to them."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import httpx
from stele.testing import run_broker


def test_every_line_is_json_and_has_the_id_of_its_request() -> None:
    environment = {"STELE_LOG_FORMAT": "json", "STELE_LOG_LEVEL": "debug"}
    with run_broker(environment=environment) as broker:
        given = httpx.get(f"{broker.http_url}/v1/topics/none", headers={"X-Request-Id": "mine-7"})
        made = httpx.put(f"{broker.http_url}/v1/topics/orders")
        hostile = httpx.get(f"{broker.http_url}/%0a%1b[2J", headers={"X-Request-Id": 'a b"<'})
        assert broker.stop() == 0
        stderr = broker.stderr
    lines = [json.loads(line) for line in stderr.splitlines()]
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"]) for line in lines)
    by_id = {line["request_id"]: line["message"] for line in lines if "request_id" in line}
    assert given.headers["x-request-id"] == "mine-7"
    assert by_id["mine-7"].startswith("GET /v1/topics/none 404 ")
    assert by_id[made.headers["x-request-id"]].startswith("PUT /v1/topics/orders 201 ")
    replaced = hostile.headers["x-request-id"]
    assert re.fullmatch("[0-9a-f]{16}", replaced)
    assert "\x1b" not in by_id[replaced]
    assert any("request_id" not in line for line in lines)


def test_what_happens_of_itself_later_has_the_id_of_no_request() -> None:
    environment = {"STELE_LOG_FORMAT": "json", "STELE_GROUP_MIN_SESSION_TIMEOUT_MS": "100"}
    with run_broker(environment=environment) as broker, httpx.Client(base_url=broker.http_url) as http:
        http.post("/v1/topics/orders/records", json={"records": [{"value": "x"}]})
        joining = {"topics": ["orders"], "session_timeout_ms": 100}
        http.post("/v1/groups/silent/members", json=joining, headers={"X-Request-Id": "the-join"})
        polling = {"topics": ["orders"], "lease_ms": 100}
        http.post("/v1/groups/slow/poll", json=polling, headers={"X-Request-Id": "the-poll"})
        wanted = ("missed its session timeout", "'silent' is empty", "a lease ran out")
        deadline_s = time.monotonic() + 30
        while not all(text in broker.stderr for text in wanted):
            assert time.monotonic() < deadline_s, broker.stderr
        lines = [json.loads(line) for line in broker.stderr.splitlines()]
    by_itself = [line for line in lines if any(text in line["message"] for text in wanted)]
    assert len(by_itself) == 3
    assert not [line for line in by_itself if "request_id" in line]
    # What the requests did at once has theirs.
    assert {"the-join", "the-poll"} <= {line.get("request_id") for line in lines}


def test_people_get_lines_with_the_id_at_their_end(tmp_path: Path) -> None:
    with run_broker(environment={"STELE_LOG_LEVEL": "debug"}) as broker:
        named = httpx.get(f"{broker.http_url}/healthz").headers["x-request-id"]
        assert broker.stop() == 0
        assert re.search(rf"GET /healthz 200 .* \[request {named}\]$", broker.stderr, re.MULTILINE)


def test_without_debug_no_request_is_logged() -> None:
    with run_broker() as broker:
        httpx.get(f"{broker.http_url}/healthz")
        assert broker.stop() == 0
        assert "healthz" not in broker.stderr
