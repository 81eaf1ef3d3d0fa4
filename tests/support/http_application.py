"""The HTTP application in this process, over a broker without a socket."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.routing import BaseRoute, Mount, Route

from app.api.application import create_application
from app.api.state import CdcView, ReplicaView
from app.broker.broker import Broker
from app.clock import Clock
from app.cluster.credentials import CredentialStore
from app.cluster.sqlite.catalog import CatalogDatabase, SqliteCatalog
from app.cluster.sqlite.groups import SqliteGroupStore
from app.groups.coordinator import GroupCoordinator
from app.groups.leases.manager import LeaseManager
from app.groups.services import Groups
from app.groups.share_queue import ShareQueue
from app.groups.table import GroupTable
from app.iceberg.supervisor import IcebergTables
from app.registry.service import SchemaRegistry
from app.security.authenticator import Authenticator
from app.security.credentials import Credentials
from app.security.policy import ListenerSecurity
from app.settings import Settings
from app.sql.snapshots import Snapshots
from app.sql.statements import SqlStatements
from app.storage.embedded import EmbeddedEngine
from app.transactions.coordinator import TransactionCoordinator
from app.transactions.services import open_services
from tests.support.engines import QUIET
from tests.support.simulated_time import RealFilesInSimulatedTime


@asynccontextmanager
async def application(
    path: Path,
    clock: Clock,
    *,
    has_login: bool = False,
    replica: ReplicaView | None = None,
    cdc: CdcView | None = None,
    **given: Any,
) -> AsyncGenerator[FastAPI]:
    """Serve the HTTP API over a broker of its own, opened in ``path`` with the settings ``given``.

    It has the login page if ``has_login``. ``replica`` and ``cdc`` are what it says of them.
    """
    settings = Settings(data_dir=path, **given)
    engine = EmbeddedEngine(RealFilesInSimulatedTime(), path, clock=clock, options=QUIET)
    await engine.open()
    catalog = SqliteCatalog(path / "metadata.sqlite")
    broker = Broker(engine=engine, catalog=catalog, clock=clock, settings=settings)
    await broker.open()
    store = SqliteGroupStore(path / "groups.sqlite")
    coordinator = GroupCoordinator(
        GroupTable(store=store, clock=clock, settings=settings, topic=broker.topic)
    )
    await coordinator.open()
    groups = Groups(
        coordinator,
        LeaseManager(broker=broker, coordinator=coordinator, clock=clock),
        ShareQueue(broker=broker, shares=coordinator.shares),
    )
    credentials = Credentials(CredentialStore(CatalogDatabase(path / "metadata.sqlite")))
    await credentials.open()
    authenticator = Authenticator(
        credentials, clock=clock, mechanisms=["PLAIN"], tokens=None, free_failures=10
    )
    security = ListenerSecurity(
        listener="http", mode="optional" if has_login else "none", authenticator=authenticator
    )
    transactions = TransactionCoordinator(broker=broker, groups=coordinator, clock=clock, settings=settings)
    await transactions.open()
    services = await open_services(broker, groups, transactions, clock)
    try:
        yield create_application(
            broker,
            groups,
            services,
            settings,
            cdc,
            security=security,
            replica=replica,
            sql=SqlStatements(
                broker, Snapshots(IcebergTables(settings, broker, "").catalog), SchemaRegistry(broker).values
            ),
        )
    finally:
        groups.begin_close()
        await services.close()
        await groups.close()
        await broker.close()
        authenticator.close()
        await credentials.close()


def _leaves(routes: list[BaseRoute]) -> Iterator[BaseRoute]:
    for route in routes:
        inner = getattr(route, "original_router", None)
        if inner is None:
            yield route
        else:
            yield from _leaves(inner.routes)


def routes_of(app: FastAPI) -> list[Route]:
    """Return every route of the router's table."""
    found = list(_leaves(app.router.routes))
    # The files of the documentation pages.
    assert [route.path for route in found if isinstance(route, Mount)] == ["/static-offline-docs"]
    return [route for route in found if isinstance(route, Route)]
