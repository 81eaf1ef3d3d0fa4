"""A query has only what its route declares: anything else is refused before the body is read, and nothing changes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from fastapi import FastAPI
from starlette.types import Message

from app.api.guarded_route import GuardedRoute
from app.api.openapi.operations import OPERATIONS
from app.api.parameters import IN_PATHS
from app.api.schemas import Components
from app.clock import SystemClock
from app.security.principal import ANONYMOUS
from tests.support.acls import authorizer_over
from tests.support.http_application import application, routes_of

# What the routes could have changed.
STATE = (
    "/v1/topics?sizes=true",
    "/v1/topics/orders",
    "/v1/topics/orders/partitions/0/records",
    "/v1/groups",
    "/v1/groups/billing",
    "/v1/transactions",
    "/v1/open-transactions",
    "/v1/quotas",
)


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[FastAPI]:
    async with application(tmp_path, SystemClock()) as app:
        async with client_of(app) as http:
            (await http.put("/v1/topics/orders", json={"partitions": 1})).raise_for_status()
            record = {"key": "ada", "value": "1", "partition": 0}
            (await http.post("/v1/topics/orders/records", json={"records": [record]})).raise_for_status()
            offsets = [{"topic": "orders", "partition": 0, "offset": 1}]
            (await http.put("/v1/groups/billing/offsets", json={"offsets": offsets})).raise_for_status()
        yield app


def client_of(app: FastAPI) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://broker")


async def state_of(app: FastAPI) -> list[Any]:
    async with client_of(app) as http:
        answers = [await http.get(path) for path in STATE]
    assert [answer.status_code for answer in answers] == [200] * len(STATE)
    documents = [answer.json() for answer in answers]
    for document in documents:
        # The time of the answer.
        document.pop("now", None)
    return documents


async def refused(app: FastAPI, method: str, target: str) -> dict[str, Any]:
    """Send a request whose body must not be read; return the problem."""
    parts = urlsplit(target)
    sent: list[Message] = []

    async def receive() -> Message:
        raise AssertionError("the body is read")

    async def send(message: Message) -> None:
        sent.append(message)

    scope: dict[str, Any] = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "path": parts.path,
        "raw_path": parts.path.encode(),
        "query_string": parts.query.encode(),
        "headers": [(b"content-type", b"application/json"), (b"content-length", b"2")],
        "state": {},
    }
    await app(scope, receive, send)
    start, *rest = sent
    problem = json.loads(b"".join(message["body"] for message in rest))
    assert (start["status"], problem["type"]) == (400, "/problems/invalid-request"), f"{method} {target}"
    assert dict(start["headers"])[b"content-type"] == b"application/problem+json"
    return problem


async def test_every_route_of_the_api_refuses_an_unknown_parameter(app: FastAPI) -> None:
    before = await state_of(app)
    routes = [route for route in routes_of(app) if route.path.startswith("/v1/")]
    assert len(routes) > 50
    for route in routes:
        assert isinstance(route, GuardedRoute)
        (method,) = sorted(route.methods or ())
        template = route.path.replace(":path", "")
        path = template.format(**{name: parameter_example(name) for name in route.param_convertors})
        problem = await refused(app, method, f"{path}?no-such=1")
        declared = OPERATIONS[route.name].parameters
        names = sorted(parameter.name for parameter in declared if parameter.place == "query")
        known = f"the parameters {', '.join(names)}" if names else "none"
        assert problem["detail"] == f"there is no query parameter 'no-such'; {method} {template} has {known}"
    assert await state_of(app) == before


async def test_the_new_routes_are_among_them(app: FastAPI) -> None:
    paths = {route.path for route in routes_of(app)}
    assert {"/v1/mirrors", "/v1/mirrors/{mirror}", "/v1/iceberg", "/v1/sql", "/v1/cdc"} <= paths


def parameter_example(name: str) -> str:
    return str(IN_PATHS[name].document(Components())["example"])


@pytest.mark.parametrize(
    ("query", "detail"),
    [
        (
            "offset=5",
            "there is no query parameter 'offset'; GET /v1/topics/{topic}/partitions/{partition}/offsets "
            "has the parameters at, isolation",
        ),
        ("isolaton=read_committed", "there is no query parameter 'isolaton', did you mean isolation?; GET "),
        ("At=latest", "there is no query parameter 'At', did you mean at?; GET "),
        ("IsolationLevel=x", "there is no query parameter 'IsolationLevel', did you mean isolation?; GET "),
        ("at=latest&at=earliest", "at is given several times; give it once"),
        ("at=latest&at=latest", "at is given several times; give it once"),
        ("at=latest&=5", "a query parameter has no name; GET "),
        ("%61t=latest&%FF=1", "there is no query parameter '\\ufffd'; GET "),
        (f"{'a' * 60_000}=1", f"there is no query parameter '{'a' * 40}'; GET "),
    ],
)
async def test_a_refusal_names_the_parameter_and_the_known_ones(
    app: FastAPI, query: str, detail: str
) -> None:
    problem = await refused(app, "GET", f"/v1/topics/orders/partitions/0/offsets?{query}")
    assert problem["detail"].startswith(detail.encode().decode("unicode_escape"))


async def test_a_parameter_that_takes_several_values_is_given_several_times(app: FastAPI) -> None:
    async with client_of(app) as http:
        answer = await http.get("/v1/topics/orders/search?key=ada&key=ada&&format=ndjson&")
    assert answer.status_code == 200, "the pieces between two & may be empty"
    assert len(answer.text.splitlines()) == 1


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/", "/console/topics", "/openapi.json"])
async def test_probes_scrapes_and_pages_ignore_what_they_do_not_know(app: FastAPI, path: str) -> None:
    async with client_of(app) as http:
        assert (await http.get(f"{path}?module=stele&_=1&module=more")).status_code == 200


async def test_the_rights_of_a_client_come_first(app: FastAPI) -> None:
    access = (await authorizer_over([])).access("http", ANONYMOUS, "127.0.0.1")

    async def without_rights(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "stele.access": access}, receive, send)

    transport = httpx.ASGITransport(without_rights)
    async with httpx.AsyncClient(transport=transport, base_url="http://broker") as http:
        assert (await http.get("/v1/topics/orders/search?no-such=1")).status_code == 403
        assert (await http.get("/v1/cluster?no-such=1")).status_code == 400, "it needs no right"
