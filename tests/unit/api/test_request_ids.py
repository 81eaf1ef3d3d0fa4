"""A request whose handler fails has its id in the answer and in the log."""

from __future__ import annotations

import json
import logging

import httpx
import pytest
from fastapi import FastAPI

from app.api.application import _bug
from app.api.request_ids import RequestIds
from app.logs import JsonFormatter


async def test_a_failure_is_answered_and_logged_with_its_id(caplog: pytest.LogCaptureFixture) -> None:
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(JsonFormatter().format(record))

    app = FastAPI()
    app.add_exception_handler(Exception, _bug)

    @app.get("/broken")
    async def broken() -> None:  # pyright: ignore[reportUnusedFunction]
        raise RuntimeError("the reason")

    handler = Keep()
    logging.getLogger("app.api.application").addHandler(handler)
    try:
        transport = httpx.ASGITransport(RequestIds(app), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://broker") as http:
            answer = await http.get("/broken", headers={"X-Request-Id": "mine"})
    finally:
        logging.getLogger("app.api.application").removeHandler(handler)
    assert (answer.status_code, answer.json()["request_id"]) == (500, "mine")
    assert answer.headers["x-request-id"] == "mine"
    (line,) = map(json.loads, lines)
    assert line["request_id"] == "mine"
    assert "RuntimeError: the reason" in line["exception"]
