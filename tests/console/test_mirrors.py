"""The Mirrors screen: what is copied and how far, what could not be, and what is done with a mirror."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect
from stele import Client
from stele.testing import BrokerProcess, run_broker

from .accessibility import check_accessibility
from .conftest import Open

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with run_broker(tmp_path_factory.mktemp("source") / "data") as running:
        put(running, "orders", 200)
        put(running, "bills", 10)
        yield running


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with run_broker() as running:
        with Client(running.binary_url) as client:
            # It is no copy, so the mirror refuses it.
            client.create_topic("mine")
        yield running


def put(broker: BrokerProcess, topic: str, count: int, word: str = "first") -> None:
    with Client(broker.binary_url) as client:
        client.ensure_topic(topic, partitions=1)
        client.produce_many(topic, [f"{word} {number}".encode() for number in range(count)])


def row(page: Page, partition: str) -> str:
    return f'[data-partition="{partition}"]'


def test_a_mirror_is_made_watched_paused_and_changed(open_page: Open, source: BrokerProcess) -> None:
    put(source, "mine", 1)
    # A definition that is refused is an error of the page's, too.
    page = open_page("/console/mirrors", may_fail=True)
    expect(page.get_by_text("No mirrors yet.")).to_be_visible()
    page.get_by_role("button", name="New mirror…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name", exact=True).fill("prod")
    dialog.get_by_label("From: brokers").fill(source.kafka_bootstrap)
    dialog.get_by_label("Topics:").fill("orders|bills|mine")
    dialog.get_by_label("Connection to the source").fill("sasl.password=secret")
    dialog.get_by_role("button", name="Create").click()
    expect(dialog.get_by_role("alert")).to_contain_text("sasl.password is a secret, which is not stored")
    dialog.get_by_label("Connection to the source").fill("# nothing\nclient.id=mirror")
    check_accessibility(page)
    dialog.get_by_role("button", name="Create").click()

    expect(page.get_by_role("heading", name="prod")).to_be_visible()
    expect(page.locator(row(page, "orders-0"))).to_contain_text("level")
    expect(page.locator(row(page, "orders-0")).locator("td").nth(2)).to_have_text("200")
    expect(page.locator("dl.tiles")).to_contain_text("100.0 %")
    missing = page.get_by_role("region", name="Not copied")
    expect(missing).to_contain_text("topic 'mine' exists here and is no copy")
    check_accessibility(page)

    page.get_by_role("button", name="Change…").click()
    expect(dialog.get_by_label("Connection to the source")).to_have_value("client.id=mirror")
    dialog.get_by_label("Topics:").fill("orders|bills")
    dialog.get_by_label("Limit in bytes").fill("10000000")
    dialog.get_by_role("button", name="Change", exact=True).click()
    expect(page.get_by_role("region", name="Definition")).to_contain_text("9.5 MiB/s")
    expect(page.locator("dl.tiles")).to_contain_text("level")

    page.get_by_role("button", name="Pause").click()
    expect(page.locator("dl.tiles")).to_contain_text("paused")
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("dl.tiles")).to_contain_text("level")
    page.goto(page.url.partition("?")[0])
    line = page.locator('[data-mirror="prod"]')
    expect(line).to_contain_text("level")
    check_accessibility(page)


@pytest.mark.long
def test_a_copy_that_has_diverged_is_cut_back(
    open_page: Open, source: BrokerProcess, http: httpx.Client, tmp_path: Path
) -> None:
    source.stop()
    shutil.copytree(source.data_dir, tmp_path / "earlier")
    source.start()
    put(source, "orders", 50, "lost")
    page = open_page("/console/mirrors?mirror=prod")
    end = page.locator(row(page, "orders-0")).locator("td").nth(2)
    expect(end).to_have_text("250")
    source.kill()
    shutil.rmtree(source.data_dir)
    shutil.copytree(tmp_path / "earlier", source.data_dir)
    source.start()
    put(source, "orders", 60, "other")
    expect(page.locator(row(page, "orders-0"))).to_contain_text(
        "Both have the same records before offset 200."
    )
    check_accessibility(page)
    page.get_by_role("button", name="Cut back…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("orders-0")
    dialog.get_by_role("button", name="Cancel").click()
    assert http.get("/v1/mirrors/prod").json()["stopped"] == 1
    page.get_by_role("button", name="Cut back…").click()
    dialog.get_by_role("button", name="Cut back", exact=True).click()
    expect(end).to_have_text("260")
    expect(page.locator("dl.tiles")).to_contain_text("level")


@pytest.mark.long
def test_copies_are_promoted_and_the_mirror_is_deleted(open_page: Open, http: httpx.Client) -> None:
    page = open_page("/console/mirrors?mirror=prod")
    page.get_by_role("button", name="Promote bills").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Type bills to confirm").fill("bills")
    dialog.get_by_role("button", name="Promote", exact=True).click()
    expect(page.get_by_text("1 promoted")).to_be_visible()
    expect(page.get_by_role("region", name="Not copied")).to_contain_text("it was promoted")
    page.get_by_role("button", name="Delete…").click()
    expect(dialog).to_contain_text("Its copies stay")
    dialog.get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_text("No mirrors yet.")).to_be_visible()
    assert http.get("/v1/mirrors").json() == {"mirrors": []}


def test_a_mirror_that_does_not_exist_is_named(open_page: Open) -> None:
    page = open_page("/console/mirrors?mirror=none", may_fail=True)
    expect(page.get_by_role("alert")).to_contain_text("'none'")
