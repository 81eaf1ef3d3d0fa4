"""The Tables screen: how far the tables of topics are, and the snapshots of one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect
from stele import Client
from stele.records import NewRecord
from stele.testing import BrokerProcess, run_broker

from .accessibility import check_accessibility
from .conftest import Open


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with run_broker() as running:
        yield running


def test_tables_are_listed_with_their_rows_and_each_shows_its_snapshots(
    open_page: Open, broker: BrokerProcess
) -> None:
    page = open_page("/console/tables")
    expect(page.get_by_text("No topic is a table yet.")).to_be_visible()
    with Client(broker.binary_url) as client:
        configs = {"stele.iceberg.mode": "key_value", "stele.iceberg.commit.interval.ms": "100"}
        client.create_topic("orders", partitions=1, configs=configs)
        # The last one does not fit: its time is in no year that a table has.
        client.produce_many("orders", [*[NewRecord(b"v")] * 1200, NewRecord(b"v", timestamp=-(10**14))])
    line = page.locator('[data-table="orders"]')
    expect(line).to_contain_text("level")
    expect(line.locator("td").nth(3)).to_have_text("1,200")
    expect(line.locator("td").nth(4)).to_have_text("1")
    check_accessibility(page)

    line.get_by_role("link").click()
    expect(page.get_by_role("heading", name="orders")).to_be_visible()
    expect(page.locator("dl.tiles")).to_contain_text("1,200")
    snapshots = page.get_by_role("region", name="Snapshots")
    expect(snapshots).to_contain_text("append")
    expect(snapshots.locator("tbody tr").first.locator("td").nth(3)).to_have_text("1,200")
    expect(page.get_by_text("stele.orders_errors")).to_be_visible()
    check_accessibility(page)
    page.get_by_role("link", name="Tables /").click()
    expect(page.get_by_text("1 table")).to_be_visible()
