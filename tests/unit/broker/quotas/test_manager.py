"""Quotas survive a restart, change at once, and end waits when they do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from app.broker.catalog_thread import CatalogThread
from app.broker.quotas.entities import QuotaEntity
from app.broker.quotas.limits import QuotaKey
from app.broker.quotas.machine import QuotaClient
from app.broker.quotas.manager import Quotas
from app.broker.quotas.rate import Window
from app.cluster.catalog import ConfigRecord
from app.cluster.sqlite.catalog import SqliteCatalog
from app.errors import InvalidRequest, QuotaExceeded
from tests.support.simulated_time import SimulatedClock, simulated

ALICE = QuotaClient("alice", "app")
OF_ALICE = QuotaEntity.of([("user", "alice")])


@asynccontextmanager
async def quotas(path: Path) -> AsyncGenerator[Quotas]:
    catalog = CatalogThread(SqliteCatalog(path / "metadata.sqlite"))
    opened = Quotas(
        catalog=catalog, now_ms=SimulatedClock().monotonic_ms, clock_s=lambda: 0.0, window=Window()
    )
    await opened.open()
    try:
        yield opened
    finally:
        await catalog.close()


@simulated
async def test_quotas_survive_a_restart(tmp_path: Path) -> None:
    default_client = QuotaEntity.of([("user", 'a "name"'), ("client-id", None)])
    async with quotas(tmp_path) as first:
        assert not first.is_active
        await first.alter(OF_ALICE, {"producer_byte_rate": 1024.0, "request_percentage": 12.5})
        await first.alter(default_client, {"consumer_byte_rate": 2.0**53})
        await first.alter(QuotaEntity.of([("ip", None)]), {"connection_creation_rate": 3})
        listed = first.list()
        assert len(listed) == 3
    async with quotas(tmp_path) as second:
        assert second.is_active
        assert second.times_requests
        assert second.list() == listed
        assert second.at_once_max(QuotaKey.PRODUCE, ALICE) == 10_240
        for entity, values in listed:
            assert await second.alter(entity, dict.fromkeys(values)) == {}
        assert not second.is_active
    async with quotas(tmp_path) as third:
        assert third.list() == []


@simulated
async def test_a_change_that_is_refused_or_only_checked_changes_nothing(tmp_path: Path) -> None:
    async with quotas(tmp_path) as one:
        await one.alter(OF_ALICE, {"producer_byte_rate": 1024})
        with pytest.raises(InvalidRequest):
            await one.alter(OF_ALICE, {"producer_byte_rate": 5, "nonsense": 1})
        assert await one.alter(OF_ALICE, {"producer_byte_rate": 5}, validate_only=True) == {
            QuotaKey.PRODUCE: 5
        }
        assert one.list() == [(OF_ALICE, {QuotaKey.PRODUCE: 1024})]
        await one.alter(OF_ALICE, {"consumer_byte_rate": 7, "producer_byte_rate": None})
        assert one.list() == [(OF_ALICE, {QuotaKey.CONSUME: 7})]


@simulated
async def test_a_change_ends_waits_at_once(tmp_path: Path) -> None:
    async with quotas(tmp_path) as one:
        await one.alter(OF_ALICE, {"producer_byte_rate": 1})
        delay_ms = one.charge("http", QuotaKey.PRODUCE, ALICE, 1_000_000)
        with pytest.raises(QuotaExceeded) as refused:
            one.check("http", QuotaKey.PRODUCE, ALICE)
        assert refused.value.retry_after_ms == delay_ms
        noted = one.throttling["http", QuotaKey.PRODUCE]
        assert (noted.violations, noted.delay_ms) == (2, 2 * delay_ms)
        waiting = asyncio.create_task(one.pause(delay_ms))
        await asyncio.sleep(1)
        assert not waiting.done()
        await one.alter(OF_ALICE, {"producer_byte_rate": None})
        before_s = asyncio.get_running_loop().time()
        await waiting
        assert asyncio.get_running_loop().time() - before_s < 1, "the simulated time of the wait"
        one.check("http", QuotaKey.PRODUCE, ALICE)


@simulated
async def test_waits_go_on_when_something_else_has_changed(tmp_path: Path) -> None:
    async with quotas(tmp_path) as one, quotas(tmp_path) as other:
        await one.alter(OF_ALICE, {"producer_byte_rate": 1})
        delay_ms = one.charge("http", QuotaKey.PRODUCE, ALICE, 1_000_000)
        await one.refresh()
        assert one.wait_ms(QuotaKey.PRODUCE, ALICE) == delay_ms
        await other.refresh()
        await other.alter(OF_ALICE, {"producer_byte_rate": 2})
        await one.refresh()
        assert one.wait_ms(QuotaKey.PRODUCE, ALICE) == 0


@simulated
async def test_a_closing_broker_delays_nobody(tmp_path: Path) -> None:
    async with quotas(tmp_path) as one:
        await one.alter(OF_ALICE, {"producer_byte_rate": 1})
        waiting = asyncio.create_task(one.pause(10**9))
        await asyncio.sleep(1)
        one.begin_close()
        await waiting
        assert one.charge("kafka", QuotaKey.PRODUCE, ALICE, 10**6) == 0
        one.check("http", QuotaKey.PRODUCE, ALICE)


@simulated
async def test_a_pause_ends_by_itself(tmp_path: Path) -> None:
    async with quotas(tmp_path) as one:
        before_s = asyncio.get_running_loop().time()
        await one.pause(5_000)
        assert asyncio.get_running_loop().time() - before_s == pytest.approx(5), "simulated time"


@simulated
async def test_other_records_of_the_catalog_are_not_quotas(tmp_path: Path) -> None:
    catalog = SqliteCatalog(tmp_path / "metadata.sqlite")
    catalog.set_configs(ConfigRecord(kind="group", entity="g", configs={"x": "1"}))
    catalog.close()
    async with quotas(tmp_path) as one:
        assert one.list() == []
