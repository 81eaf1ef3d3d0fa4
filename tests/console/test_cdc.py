"""The CDC screen: the connector of the broker to a real PostgreSQL, its tables and copies, and requests to it."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect
from stele.testing import run_broker

from load.postgres_server import PostgresServer
from tests.support.postgres import postgres_bin

from .accessibility import check_accessibility
from .conftest import Open

pytestmark = pytest.mark.long


def test_tables_are_shown_added_copied_and_dropped(open_page: Open) -> None:
    expect(open_page("/console/cdc").locator("#view")).to_contain_text("This broker runs no connector.")
    with PostgresServer(postgres_bin()) as pg:
        for name in ("t", "b"):
            pg.run(f"CREATE TABLE {name} (id int PRIMARY KEY, v text)")
            pg.run(f"INSERT INTO {name} VALUES (1, 'a')")
        environment = {"STELE_CDC_DSN": pg.dsn, "STELE_CDC_TABLES": "t"}
        with run_broker(environment=environment) as broker:
            # A request that is refused is an error of the page's, too.
            page = open_page("/console/cdc", base=broker.http_url, may_fail=True)
            tiles, changes = page.locator("dl.tiles"), page.get_by_role("region", name="Schema changes")
            expect(tiles).to_contain_text("streaming")
            row = page.locator('[data-table="public.t"]')
            expect(row.locator("td").nth(2)).to_have_text("1")
            expect(changes).to_contain_text("id integer, v text")
            pg.run("ALTER TABLE t ADD COLUMN n int")
            pg.run("ALTER TABLE t DROP COLUMN v")
            pg.run("INSERT INTO t VALUES (2)")
            expect(row.locator("td").nth(3)).to_have_text("1")
            expect(changes).to_contain_text("+ n integer, − v")
            expect(tiles).to_contain_text("B of WAL")
            check_accessibility(page)

            page.get_by_role("button", name="Add tables…").click()
            dialog = page.get_by_role("dialog")
            dialog.get_by_label("Tables:").fill("public.b, nowhere")
            dialog.get_by_role("button", name="Add", exact=True).click()
            expect(page.locator('[data-table="public.b"]')).to_contain_text("streaming")
            expect(page.get_by_role("region", name="Tables")).to_contain_text(
                "public.nowhere: there is no table public.nowhere"
            )

            page.get_by_role("button", name="Copy public.t").click()
            condition = dialog.get_by_label("Only rows for which")
            condition.fill("id > (1")
            dialog.get_by_role("button", name="Copy", exact=True).click()
            expect(dialog.get_by_role("alert")).to_contain_text("parentheses of the condition do not match")
            check_accessibility(page)
            condition.fill("no_column > 1")
            dialog.get_by_role("button", name="Copy", exact=True).click()
            expect(page.locator("p.notice").filter(has_text="no_column")).to_be_visible()

            page.get_by_role("button", name="Drop public.b").click()
            dialog.get_by_role("button", name="Drop", exact=True).click()
            expect(page.locator('[data-table="public.b"]')).to_have_count(0)
            # An open page keeps polling, and would report that the broker is gone.
            page.close()
