"""The parameters in the OpenAPI document are those that the routes read."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from fastapi import FastAPI
from starlette import requests
from starlette.datastructures import Headers, QueryParams
from starlette.types import Message

from app.clock import SystemClock
from tests.support.http_application import application
from tests.support.openapi_document import recorded_document

# Headers of HTTP itself, which OpenAPI describes elsewhere.
PLAIN_HEADERS = {"accept", "content-length", "content-type", "cookie", "transfer-encoding"}


class Reads:
    """The names that routes look up in the query and in the headers of their requests."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: set[tuple[str, str]] = set()
        note = self.names.add

        class WatchedQuery(QueryParams):
            def __getitem__(self, key: str) -> str:
                note(("query", key))
                return super().__getitem__(key)

            def __contains__(self, key: object) -> bool:
                note(("query", str(key)))
                return super().__contains__(key)

            def get(self, key: Any, default: Any = None) -> Any:
                note(("query", key))
                return super().get(key, default)

            def getlist(self, key: Any) -> list[str]:
                note(("query", key))
                return super().getlist(key)

        class WatchedHeaders(Headers):
            def get(self, key: Any, default: Any = None) -> Any:
                if key not in PLAIN_HEADERS:
                    note(("header", key))
                return super().get(key, default)

            def getlist(self, key: str) -> list[str]:
                if key not in PLAIN_HEADERS:
                    note(("header", key))
                return super().getlist(key)

        monkeypatch.setattr(requests, "QueryParams", WatchedQuery)
        monkeypatch.setattr(requests, "Headers", WatchedHeaders)

    def take(self) -> set[tuple[str, str]]:
        names = set(self.names)
        self.names.clear()
        return names


async def send(
    app: FastAPI, method: str, path: str, query: str = "", *, body: bytes = b"", headers: dict[str, str]
) -> int:
    """Send a request from a client that disconnects after it, so that a stream ends; return the status."""
    incoming: Iterable[Message] = iter(
        [{"type": "http.request", "body": body, "more_body": False}, {"type": "http.disconnect"}]
    )
    statuses: list[int] = []

    async def receive() -> Message:
        return next(iter(incoming), {"type": "http.disconnect"})

    async def answer(message: Message) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    scope: dict[str, Any] = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [
            (b"content-length", str(len(body)).encode()),
            *((name.lower().encode(), value.encode()) for name, value in headers.items()),
        ],
        "state": {},
    }
    await app(scope, receive, answer)
    # A client that has left after its request may get no answer.
    return statuses[0] if statuses else 499


def value_of(schema: dict[str, Any], schemas: dict[str, Any]) -> str:
    schema = schemas[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    for candidates in ([schema["default"]] if "default" in schema else [], schema.get("enum", [])):
        if candidates:
            return str(candidates[0]).lower()
    if schema["type"] == "integer":
        return str(schema.get("minimum", 1))
    return str(schema.get("examples", ["text"])[0])


def bodies(operation: dict[str, Any]) -> list[tuple[str, bytes]]:
    """Each media type that the operation accepts, with its example."""
    content: dict[str, Any] = operation.get("requestBody", {}).get("content", {})
    if not content:
        return [("application/json", b"")]
    return [
        (
            media,
            part["example"].encode()
            if isinstance(part["example"], str)
            else json.dumps(part["example"]).encode(),
        )
        for media, part in content.items()
    ]


async def test_every_route_reads_exactly_the_parameters_that_are_documented(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = recorded_document()
    reads = Reads(monkeypatch)
    async with application(tmp_path, SystemClock()) as app:
        for template, item in document["paths"].items():
            for method, operation in item.items():
                parameters: list[dict[str, Any]] = operation.get("parameters", [])
                path = template
                for parameter in parameters:
                    if parameter["in"] == "path":
                        path = path.replace(f"{{{parameter['name']}}}", str(parameter["example"]))
                assert "{" not in path, f"{method} {template} lacks a path parameter"
                given = {
                    place: {
                        p["name"]: value_of(p["schema"], document["components"]["schemas"])
                        for p in parameters
                        if p["in"] == place
                    }
                    for place in ("query", "header")
                }
                # An operation before may have deleted the record.
                await send(app, "DELETE", "/v1/topics/orders", headers={})
                await send(
                    app,
                    "POST",
                    "/v1/topics/orders/records",
                    body=b'{"records":[{"value":"x"}]}',
                    headers={"content-type": "application/json"},
                )
                reads.take()
                seen: set[tuple[str, str]] = set()
                for accept in ("application/json", "text/event-stream"):
                    for media, body in bodies(operation):
                        all_given = urlencode(given["query"])
                        # A topic id is not that of this topic, and ends a request before it has read all.
                        for query, headers in (("", {}), (all_given, {}), (all_given, given["header"])):
                            kinds = {"accept": accept, "content-type": media}
                            await send(app, method.upper(), path, query, body=body, headers=kinds | headers)
                            seen |= reads.take()
                documented = {
                    (p["in"], p["name"].lower() if p["in"] == "header" else p["name"])
                    for p in parameters
                    if p["in"] != "path"
                }
                assert seen == documented, f"{method} {template}"
