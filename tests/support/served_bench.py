"""A broker over a simulated disk and clock that is served over HTTP, without a socket."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
from fastapi import FastAPI

from app.api.application import create_application
from app.groups.leases.manager import LeaseManager
from app.groups.services import Groups
from app.groups.share_queue import ShareQueue
from app.transactions.services import open_services

from .transactions import TransactionBench


@asynccontextmanager
async def serving(path: Path) -> AsyncGenerator[tuple[TransactionBench, FastAPI, httpx.AsyncClient]]:
    bench = await TransactionBench(path).open()
    leases = LeaseManager(broker=bench.broker, coordinator=bench.groups, clock=bench.clock)
    groups = Groups(bench.groups, leases, ShareQueue(broker=bench.broker, shares=bench.groups.shares))
    services = await open_services(bench.broker, groups, bench.transactions, bench.clock)
    app = create_application(bench.broker, groups, services, bench.settings)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield bench, app, client
    await bench.close()
