"""The served OpenAPI document equals the recorded one, and a generator can make a client of it."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from fastapi.routing import APIRoute

from app.api.openapi.document import complete
from app.clock import SystemClock
from app.work_budget import at_once
from tests.support.http_application import application
from tests.support.openapi_document import recorded_document, served_document
from tests.support.simulated_time import SimulatedClock, simulated
from tests.support.turns import Turns
from tests.unit.test_declared_rights import routes_of


def operations(document: dict[str, Any]) -> dict[tuple[str, str], Any]:
    return {
        (method, path): item[method]
        for path, item in document.pop("paths").items()
        for method in sorted(item)
    }


# Pages for people.
PAGES = re.compile(r"/|/docs(/.*)?|/redoc|/openapi\.json|/console/.*")


@pytest.fixture
def document() -> dict[str, Any]:
    return recorded_document()


def parts(value: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every object in ``value`` with its path."""
    children: Iterable[tuple[object, Any]] = ()
    if isinstance(value, dict):
        yield path, cast("dict[str, Any]", value)
        children = cast("dict[str, Any]", value).items()
    elif isinstance(value, list):
        children = enumerate(cast("list[Any]", value))
    for name, child in children:
        if name not in ("example", "examples"):
            yield from parts(child, f"{path}/{name}")


@simulated
async def test_the_served_document_equals_the_recorded_one(tmp_path: Path) -> None:
    served, recorded = await served_document(tmp_path), recorded_document()
    assert list(served["paths"]) == list(recorded["paths"]), "the documentation lists paths in this order"
    served_operations, recorded_operations = operations(served), operations(recorded)
    assert served_operations.keys() == recorded_operations.keys()
    for name, operation in served_operations.items():
        assert operation == recorded_operations[name], name
    assert served == recorded


def test_operation_ids_are_short_and_unique(document: dict[str, Any]) -> None:
    ids = [operation["operationId"] for operation in operations(document).values()]
    assert [one for one, count in Counter(ids).items() if count > 1] == []
    assert [one for one in ids if not re.fullmatch(r"[a-z]+(_[a-z]+){0,4}", one) or len(one) > 32] == []


@simulated
async def test_every_route_but_pages_for_people_is_in_the_document(tmp_path: Path) -> None:
    async with application(tmp_path, SimulatedClock()) as app:
        served = {
            (method.lower(), route.path_format if isinstance(route, APIRoute) else route.path)
            for route in routes_of(app)
            for method in (route.methods or set()) - {"HEAD"}
        }
        described = set(operations(app.openapi()))
    undescribed = {path for _, path in served - described}
    assert {path for path in undescribed if not PAGES.fullmatch(path)} == set()
    assert described <= served


def test_every_object_has_a_name_and_no_enumeration_is_written_twice(document: dict[str, Any]) -> None:
    inline = [
        path
        for path, part in parts(document)
        if isinstance(part.get("properties"), dict) and not re.fullmatch(r"/components/schemas/\w+", path)
    ]
    assert inline == []
    lists = Counter(
        json.dumps(sorted(map(str, part["enum"])))
        for _, part in parts(document)
        if isinstance(part.get("enum"), list)
    )
    assert [values for values, count in lists.items() if count > 1] == []


def test_every_component_is_used_and_every_reference_is_to_a_component(document: dict[str, Any]) -> None:
    references = {part["$ref"] for _, part in parts(document) if isinstance(part.get("$ref"), str)}
    components = {
        f"#/components/{kind}/{name}"
        for kind in ("schemas", "responses")
        for name in document["components"][kind]
    }
    assert references == components


def test_errors_are_shared_answers_and_each_operation_has_the_one_for_all_others(
    document: dict[str, Any],
) -> None:
    for name, operation in operations(document).items():
        errors = {
            status: answer for status, answer in operation["responses"].items() if not status.startswith("2")
        }
        assert "default" in errors, name
        assert all(answer.keys() == {"$ref"} for answer in errors.values()), name


def test_logins_are_described_and_health_checks_need_none(document: dict[str, Any]) -> None:
    schemes = document["components"]["securitySchemes"]
    assert {name: (scheme["type"], scheme.get("scheme")) for name, scheme in schemes.items()} == {
        "basic": ("http", "basic"),
        "bearer": ("http", "bearer"),
        "session": ("apiKey", None),
        "certificate": ("mutualTLS", None),
    }
    alternatives: list[dict[str, list[str]]] = [{name: []} for name in schemes]
    # This broker asks for no login.
    assert document["security"] == [{}, *alternatives]
    required = at_once(complete(document, session_cookie="stele-session-8080", is_login_required=True))
    assert required["security"] == alternatives
    open_to_all = {path for (_, path), operation in operations(document).items() if "security" in operation}
    assert open_to_all == {"/healthz", "/readyz"}


async def test_the_document_is_completed_in_many_turns_and_once(tmp_path: Path) -> None:
    async with application(tmp_path, SystemClock()) as app:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            turns = Turns()
            first, second = await asyncio.gather(*(client.get("/openapi.json") for _ in range(2)))
            before = turns.count
            third = await client.get("/openapi.json")
            turns.close()
            assert first.json() == second.json() == third.json() == app.openapi()
            # Many more for the first two together than the requests themselves take.
            assert before > len(first.json()["paths"]) > turns.count - before
