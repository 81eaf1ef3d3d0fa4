"""The screen of several brokers, over three real ones, one of which is killed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, expect
from stele import Client
from stele.testing import BrokerProcess

from load.postgres_server import PostgresServer
from tests.support.brokers import Brokers, run_brokers
from tests.support.postgres import postgres_bin

from .accessibility import check_accessibility
from .conftest import ENVIRONMENT, Open

pytestmark = pytest.mark.long

# A broker counts as dead after five seconds, and a lease moves within a few more.
FAILOVER_MS = 60_000


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    with (
        PostgresServer(postgres_bin(), fsync="off") as server,
        run_brokers(tmp_path_factory.mktemp("brokers"), server.dsn, environment=ENVIRONMENT) as running,
    ):
        with Client(running[1].binary_url) as client:
            client.create_topic("orders", partitions=3)
            client.produce("orders", b"x" * 50_000)
        yield running


@pytest.fixture
def open_at(open_page: Open, brokers: Brokers) -> Callable[..., Page]:
    def make(broker_id: int, path: str = "/console/cluster", **options: Any) -> Page:
        return open_page(path, base=brokers[broker_id].http_url, **options)

    return make


def ready(page: Page) -> None:
    for number in (1, 2, 3):
        expect(page.locator(f'tr[data-broker="{number}"]')).to_contain_text("live")
    expect(page.locator('tr[data-objects="inline committed"]')).to_be_visible()
    expect(page.locator("tr[data-lease]").first).to_contain_text("Broker")
    expect(page.locator("#kill")).to_be_visible()


def test_the_screen_can_be_used_by_everybody(open_at: Callable[..., Page], screenshots: Path | None) -> None:
    page = open_at(2)
    ready(page)
    check_accessibility(page)
    if screenshots is not None:
        page.screenshot(path=screenshots / "cluster.png")
        page.emulate_media(color_scheme="dark")
        page.screenshot(path=screenshots / "cluster-dark.png")


def test_the_screen_fits_on_a_phone(open_at: Callable[..., Page]) -> None:
    page = open_at(1, viewport={"width": 390, "height": 800}, has_touch=True)
    ready(page)
    assert page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0


def test_the_overview_adds_up_all_brokers_and_says_which_one_it_shows(
    open_at: Callable[..., Page], brokers: Brokers
) -> None:
    page = open_at(3, "/")
    expect(page.get_by_role("heading", name="Broker 3, which serves this page")).to_be_visible()
    expect(page.locator("tr.sum td").first).to_have_text("3")
    rows = page.locator("tr[data-broker]")
    expect(rows).to_have_count(3)
    page.get_by_role("link", name="Cluster").last.click()
    ready(page)


def test_a_broker_on_its_own_has_no_such_screen(open_page: Open, broker: BrokerProcess) -> None:
    page = open_page("/")
    expect(page.get_by_role("link", name="Topics", exact=True)).to_be_visible()
    expect(page.get_by_role("link", name="Cluster")).to_have_count(0)
    assert httpx.get(f"{broker.http_url}/console/cluster").status_code == 404


def test_a_killed_broker_is_shown_as_dead_and_its_lease_moves(
    open_at: Callable[..., Page], brokers: Brokers
) -> None:
    # After this, no lease moves until a broker comes or goes.
    brokers.settle()
    page = open_at(3)
    ready(page)
    command = page.locator("#kill").inner_text()
    found = re.fullmatch(r"kill -9 (\d+)", command)
    assert found is not None, command
    (victim,) = (number for number in (1, 2, 3) if brokers[number].pid == int(found[1]))
    if victim == 3:
        # Its page would lose its broker.
        page.close()
        page = open_at(1)
        ready(page)
    leases = page.locator("tr[data-lease^=groups]").filter(has_text=f"Broker {victim}")
    expect(leases).to_have_count(1)
    brokers[victim].kill()
    row = page.locator(f'tr[data-broker="{victim}"]')
    expect(row).to_contain_text(re.compile(r"dead\s*for"), timeout=FAILOVER_MS)
    expect(leases).to_have_count(0, timeout=FAILOVER_MS)
    expect(page.locator("tr.sum td").first).to_have_text("2")
    # The next one to kill is another one.
    expect(page.locator("#kill")).not_to_have_text(command)
    brokers[victim].start()
    expect(row).to_contain_text("live", timeout=FAILOVER_MS)
    expect(row).not_to_contain_text("dead")
