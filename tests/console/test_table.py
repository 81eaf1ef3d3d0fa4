"""The tab Table of a compacted topic: rows per key, live changes, look-ups, limits, outages."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Locator, Page, Request, expect
from stele.testing import BrokerProcess, run_broker

from .accessibility import check_accessibility
from .conftest import ENVIRONMENT, Open

pytestmark = pytest.mark.long

ROWS_MAX = 500
KEYS_MAX = 20_000


def put(http: httpx.Client, topic: str, **values: str | None) -> None:
    """Produce records whose keys are the names of ``values``; None is a tombstone."""
    records = [{"key": key, "value": value} for key, value in values.items()]
    answer = http.post(f"/v1/topics/{topic}/records", json={"records": records})
    assert answer.status_code == 200, answer.text


def make_table(http: httpx.Client, topic: str, **values: str | None) -> None:
    """Create a compacted topic with a partition."""
    assert http.put(f"/v1/topics/{topic}", json={"configs": {"cleanup.policy": "compact"}}).status_code == 201
    put(http, topic, **values)


def fill(http: httpx.Client, topic: str, numbers: range) -> None:
    lines = "".join(json.dumps({"key": f"k{number}", "value": "x"}) + "\n" for number in numbers)
    headers = {"content-type": "application/x-ndjson"}
    assert http.post(f"/v1/topics/{topic}/records", content=lines, headers=headers).status_code == 200


def status(page: Page) -> Locator:
    return page.get_by_role("region", name="Table").get_by_role("status").first


def keys_and_values(page: Page) -> Locator:
    return page.locator("tr.record td:is(.key, .cut)")


def look_up(page: Page, key: str) -> Locator:
    form = page.get_by_role("form", name="Look up a key")
    form.get_by_label("Key", exact=True).fill(key)
    form.get_by_role("button", name="Look up").click()
    return form


def test_only_a_compacted_topic_has_the_tab(open_page: Open, http: httpx.Client) -> None:
    make_table(http, "tabbed", ada="London")
    page = open_page("/console/topics?topic=flights&tab=table")
    expect(page.get_by_role("table", name="Partitions")).to_be_visible()
    expect(page.get_by_role("tab")).to_have_count(0)

    page = open_page("/console/topics?topic=tabbed")
    expect(page.get_by_role("table", name="Partitions")).to_be_visible()
    page.get_by_role("tab", name="Details").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Table")).to_be_focused()
    expect(keys_and_values(page)).to_have_text(["ada", "London"])
    expect(page.get_by_role("table", name="Partitions")).to_be_hidden()
    assert page.url.endswith("topic=tabbed&tab=table")
    page.go_back()
    expect(page.get_by_role("table", name="Partitions")).to_be_visible()


def test_the_table_can_be_used_by_everybody(
    open_page: Open, http: httpx.Client, screenshots: Path | None
) -> None:
    cities = {"ada": "London", "grace": "New York", "edsger": "Rotterdam", "barbara": "Los Angeles"}
    make_table(http, "customers", **{name: json.dumps({"city": city}) for name, city in cities.items()})
    page = open_page("/console/topics?topic=customers&tab=table")
    expect(page.locator("tr.record")).to_have_count(4)
    page.locator("tr.record button.open").first.click()
    expect(page.locator("tr.detail pre")).to_contain_text("London")
    expect(look_up(page, "grace").locator("pre")).to_contain_text("New York")
    check_accessibility(page)
    if screenshots is not None:
        page.screenshot(path=screenshots / "table.png")

    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0


def test_rows_follow_the_changes_in_their_places(open_page: Open, http: httpx.Client) -> None:
    make_table(http, "cities", ada="London", grace="New York", edsger="Rotterdam")
    page = open_page("/console/topics?topic=cities&tab=table")
    expect(status(page)).to_have_text("Live: 3 keys")
    opened = page.locator("tr.record", has_text="ada").get_by_role("button")
    opened.click()
    expect(page.locator("tr.detail pre")).to_have_text("London")
    page.locator("tr.detail pre").focus()

    put(http, "cities", ada="Turin", edsger="Austin", barbara="Los Angeles")
    expect(keys_and_values(page)).to_have_text(
        ["ada", "Turin", "grace", "New York", "edsger", "Austin", "barbara", "Los Angeles"]
    )
    # The opened record stays, and so does the focus in it.
    expect(page.locator("tr.detail pre")).to_have_text("London")
    expect(page.locator("tr.detail pre")).to_be_focused()
    expect(page.locator("tr.detail")).to_contain_text("Replaced by the record at offset 3")
    opened.click()
    opened.click()
    expect(page.locator("tr.detail pre")).to_have_text("Turin")

    put(http, "cities", ada=None, grace=None)
    expect(keys_and_values(page)).to_have_text(["edsger", "Austin", "barbara", "Los Angeles"])
    expect(page.locator("tr.detail")).to_have_count(0)
    expect(status(page)).to_have_text("Live: 2 keys")
    put(http, "cities", edsger=None, barbara=None)
    expect(page.get_by_text("The table is empty.")).to_be_visible()


def test_a_paused_table_shows_the_changes_when_it_is_resumed(open_page: Open, http: httpx.Client) -> None:
    make_table(http, "paused", ada="London", grace="New York")
    page = open_page("/console/topics?topic=paused&tab=table")
    expect(status(page)).to_have_text("Live: 2 keys")
    page.get_by_role("button", name="Pause").click()
    expect(status(page)).to_have_text("Paused: 0 changes since then")
    put(http, "paused", ada="Turin", grace=None, edsger="Austin")
    expect(status(page)).to_have_text("Paused: 3 changes since then")
    expect(keys_and_values(page)).to_have_text(["ada", "London", "grace", "New York"])
    page.get_by_role("button", name="Resume").click()
    expect(keys_and_values(page)).to_have_text(["ada", "Turin", "edsger", "Austin"])
    expect(status(page)).to_have_text("Live: 2 keys")


def test_a_key_is_looked_up(open_page: Open, http: httpx.Client, broker: BrokerProcess) -> None:
    make_table(http, "looked-up", **{"ada": "London", "..": "two dots", "a/b %2F?": "odd", "gone": "x"})
    put(http, "looked-up", gone=None)
    http.post("/v1/topics/looked-up/records", json={"records": [{"key_b64": "//4=", "value": "binary"}]})
    # Browsers report answers with status 404 as errors.
    page = open_page("/console/topics?topic=looked-up&tab=table", may_fail=True)
    for key, value in {"ada": "London", "..": "two dots", "a/b %2F?": "odd"}.items():
        expect(look_up(page, key).locator("pre")).to_have_text(value)
    linked = open_page(page.url.removeprefix(broker.http_url))
    expect(linked.get_by_role("form", name="Look up a key").locator("pre")).to_have_text("odd")

    expect(look_up(page, "zed")).to_contain_text("No record of looked-up has the key “zed”.")
    expect(look_up(page, "gone")).to_contain_text(
        "The key “gone” was deleted, by the tombstone at offset 4 of partition 0."
    )
    page.get_by_label("Key is").select_option("base64")
    expect(look_up(page, "//4=").locator("pre")).to_have_text("binary")
    expect(look_up(page, "!").locator(".notice")).to_contain_text("not valid base64")


def test_a_large_table_shows_some_rows_and_counts_all(open_page: Open, http: httpx.Client) -> None:
    make_table(http, "large", k0="x")
    fill(http, "large", range(600))
    page = open_page("/console/topics?topic=large&tab=table", may_fail=True)
    expect(page.locator("tr.record")).to_have_count(ROWS_MAX)
    expect(status(page)).to_have_text("Live: 600 keys")
    expect(page.get_by_text("500 of 600 keys are shown")).to_be_visible()
    # A row that becomes free is taken by the next change of a key without one.
    put(http, "large", k0=None, k599="changed")
    expect(status(page)).to_have_text("Live: 599 keys")
    expect(page.locator("tr.record")).to_have_count(ROWS_MAX)
    expect(page.locator("tr.record").last).to_contain_text("changed")

    fill(http, "large", range(KEYS_MAX + 2))
    expect(status(page)).to_have_text("More than 20,000 keys; their changes are not followed")
    expect(page.get_by_text("500 of more than 20,000 keys are shown")).to_be_visible()
    put(http, "large", k1=None, k2=None)
    page.get_by_role("button", name="Read again").click()
    expect(status(page)).to_have_text("Live: 20,000 keys")
    expect(page.locator("tr.record")).to_have_count(ROWS_MAX)


def test_the_table_follows_again_after_a_restart_of_the_broker(open_page: Open) -> None:
    with run_broker(environment=ENVIRONMENT) as broker:
        with httpx.Client(base_url=broker.http_url) as http:
            make_table(http, "kept", ada="London", grace="New York")
        page = open_page("/console/topics?topic=kept&tab=table", base=broker.http_url, may_fail=True)
        expect(status(page)).to_have_text("Live: 2 keys")
        requests: list[Request] = []
        page.on("request", lambda request: requests.append(request) if "/table?" in request.url else None)
        broker.stop()
        expect(status(page)).to_have_text("Connection lost, reconnecting…")
        expect(page.locator("tr.record")).to_have_count(2)
        broker.start()
        with httpx.Client(base_url=broker.http_url) as http:
            put(http, "kept", ada="Turin", grace=None)
        expect(keys_and_values(page)).to_have_text(["ada", "Turin"])
        expect(status(page)).to_have_text("Live: 1 key")
        # The table was not read again. The id of the event ends with a part of that of the topic.
        assert requests[-1].all_headers()["last-event-id"].startswith("0:1@")
        page.close()


def test_a_refused_table_is_asked_for_again(open_page: Open, http: httpx.Client) -> None:
    make_table(http, "refused", ada="London")
    page = open_page("/console/topics?topic=refused", may_fail=True)
    document = {"status": 429, "detail": "8 tables are being read", "retriable": True}
    page.route(
        "**/v1/topics/refused/table?*",
        lambda route: route.fulfill(
            status=429, content_type="application/problem+json", body=json.dumps(document)
        ),
    )
    page.get_by_role("tab", name="Table").click()
    expect(page.locator("#notice")).to_have_text("8 tables are being read")
    page.unroute("**/v1/topics/refused/table?*")
    expect(keys_and_values(page)).to_have_text(["ada", "London"])
    expect(page.locator("#notice")).to_be_hidden()
