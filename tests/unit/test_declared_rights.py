"""Everything that the listeners serve declares the rights it needs; something new must, too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute, Mount, Route
from stele.wire import messages as m

from app.api.guarded_route import GuardedRoute, needs_of
from app.api.rights import NEEDS
from app.clock import SystemClock
from app.tcp.binary.dispatch import HANDLERS
from app.tcp.binary.guards import GUARDS as BINARY_GUARDS
from app.tcp.kafka.dispatch import SERVED
from app.tcp.kafka.guards.table import GUARDS as KAFKA_GUARDS
from tests.support.http_application import application

# They show no names, no records and no numbers of the broker.
OPEN_ROUTES = {
    "/v1/cluster", "/healthz", "/readyz", "/openapi.json", "/docs", "/docs/oauth2-redirect", "/redoc", "/",
    "/console/topics", "/console/messages", "/console/produce", "/console/groups", "/console/storage",
    "/console/transactions", "/console/access", "/console/static/{version}/{name}", "/console/login", "/console/logout",
}  # fmt: skip
# Open routes that only brokers with shared storage serve.
CLUSTER_ROUTES = {("GET", "/console/cluster")}
# Needed before a login, needed to find the brokers, or refused to everybody.
OPEN_APIS = {
    "ApiVersions", "SaslHandshake", "SaslAuthenticate", "DescribeCluster", "CreateDelegationToken",
    "RenewDelegationToken", "ExpireDelegationToken", "DescribeDelegationToken",
}  # fmt: skip


def leaves(routes: list[BaseRoute]) -> Iterator[BaseRoute]:
    for route in routes:
        inner = getattr(route, "original_router", None)
        if inner is None:
            yield route
        else:
            yield from leaves(inner.routes)


def routes_of(app: FastAPI) -> list[Route]:
    found = list(leaves(app.router.routes))
    # The files of the documentation pages.
    assert [route.path for route in found if isinstance(route, Mount)] == ["/static-offline-docs"]
    return [route for route in found if isinstance(route, Route)]


async def test_every_route_declares_its_rights(tmp_path: Path) -> None:
    async with application(tmp_path, SystemClock(), has_login=True) as app:
        routes = routes_of(app)
    assert len(routes) > 50
    declared = {
        (route.path, frozenset(route.methods or ())): needs_of(route.methods, route.path) for route in routes
    }
    assert [key for key, needs in declared.items() if needs is None] == []
    assert {path for (path, _), needs in declared.items() if needs == ()} == OPEN_ROUTES
    # A declaration of a route that does not exist may be a mistake in its path.
    served = {
        (method, route.path) for route in routes for method in (route.methods or ()) if method != "HEAD"
    }
    assert set(NEEDS) == served | CLUSTER_ROUTES
    assert not served & CLUSTER_ROUTES


async def test_every_route_is_checked(tmp_path: Path) -> None:
    async with application(tmp_path, SystemClock(), has_login=True) as app:
        for route in routes_of(app):
            is_wrapped = getattr(route.app, "__qualname__", "").startswith("guarded_app")
            assert isinstance(route, GuardedRoute) or is_wrapped, route.path
            if isinstance(route, APIRoute) and route.path.startswith("/v1/"):
                assert isinstance(route, GuardedRoute), route.path


def test_every_api_of_the_kafka_listener_declares_its_rights() -> None:
    assert set(KAFKA_GUARDS) == set(SERVED)
    without = {SERVED[key].api.name for key, guard in KAFKA_GUARDS.items() if not guard.rights}
    assert without == OPEN_APIS


def test_every_message_of_the_binary_listener_declares_its_rights() -> None:
    # PRODUCE of ADR-0009 has no handler: it arrives in runs, which the connection checks.
    assert set(BINARY_GUARDS) == {*HANDLERS, m.ProduceRequest}
    assert all(guard.rights for guard in BINARY_GUARDS.values())
