"""The console shows the connector of the broker to a real PostgreSQL."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect
from stele.testing import run_broker

from load.postgres_server import PostgresServer
from tests.support.postgres import postgres_bin

from .conftest import Open

pytestmark = pytest.mark.long


def test_slots_and_their_lag_are_shown_and_a_missing_connector_too(open_page: Open) -> None:
    expect(open_page("/console/storage").locator("#cdc")).to_contain_text("This broker runs no connector.")
    with PostgresServer(postgres_bin()) as pg:
        pg.run("CREATE TABLE t (id int PRIMARY KEY)")
        pg.run("INSERT INTO t VALUES (1)")
        environment = {"STELE_CDC_DSN": pg.dsn, "STELE_CDC_TABLES": "t"}
        with run_broker(environment=environment) as broker:
            page = open_page("/console/storage", base=broker.http_url)
            row = page.locator("#cdc tbody tr")
            expect(row).to_contain_text("streaming", timeout=60_000)
            pg.run("INSERT INTO t VALUES (2)")
            expect(row).to_contain_text("public.t: 1 copied, 1 changes", timeout=60_000)
            expect(row.locator("td.num").first).to_contain_text("B")
            # An open page keeps polling, and would report that the broker is gone.
            page.close()
