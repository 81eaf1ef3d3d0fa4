"""The Schemas screen: subjects, versions and their differences, checks, registrations and rules."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, expect
from stele.testing import BrokerProcess, run_broker

from app.registry.definitions import LEVELS

from .conftest import Open

EVIL = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


def record(*fields: dict[str, Any], name: str = "Order") -> str:
    return json.dumps({"type": "record", "name": name, "fields": list(fields)})


ID = {"name": "id", "type": "long", "doc": EVIL}
ITEM = {"name": "item", "type": "string", "default": ""}
ADDRESS = '{"type": "record", "name": "shop.Address", "fields": [{"name": "street", "type": "string"}]}'


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with run_broker() as running:
        yield running


@pytest.fixture(scope="module")
def registry(broker: BrokerProcess) -> Iterator[httpx.Client]:
    """The registry with a subject of each kind, and topics that use them."""
    with httpx.Client(base_url=broker.registry_url) as client:
        register(client, "orders-value", record(ID))
        register(client, "orders-value", record(ID, ITEM))
        register(client, "addresses", ADDRESS)
        reference = {"name": "shop.Address", "subject": "addresses", "version": 1}
        home = record({"name": "home", "type": "shop.Address"}, name="Person")
        register(client, "people/value", home, references=[reference])
        register(client, "seats-value", '{"type": "object", "title": "Seat"}', schemaType="JSON")
        register(client, "gone", '"string"')
        assert client.delete("/subjects/gone").status_code == 200
        assert client.put("/config/seats-value", json={"compatibility": "FULL"}).status_code == 200
        yield client
    with httpx.Client(base_url=broker.http_url) as http:
        for topic in ("orders", "returns"):
            http.delete(f"/v1/topics/{topic}")


@pytest.fixture(scope="module", autouse=True)
def topics(broker: BrokerProcess, registry: httpx.Client) -> None:
    with httpx.Client(base_url=broker.http_url) as http:
        strategy = {"stele.value.subject.name.strategy": "subject:orders-value"}
        for topic, configs in (("orders", {}), ("returns", strategy), ("seats", {})):
            assert http.put(f"/v1/topics/{topic}", json={"configs": configs}).status_code == 201


def register(client: httpx.Client, subject: str, schema: str, **fields: object) -> None:
    path = f"/subjects/{subject.replace('/', '%2F')}/versions"
    answer = client.post(path, json={"schema": schema, **fields})
    assert answer.status_code == 200, answer.text


def cells(page: Page, subject: str) -> list[str]:
    return page.locator("#list tbody tr").filter(has_text=subject).locator("td").all_inner_texts()


def test_subjects_are_listed_and_found(open_page: Open) -> None:
    page = open_page("/console/schemas")
    expect(page.locator("#list tbody tr")).to_have_count(4)
    expect(page.locator("#list tbody tr").filter(has_text="seats-value")).to_contain_text("FULL")
    expect(
        page.locator("#list tbody tr").filter(has_text="orders-value").locator("td").nth(3)
    ).not_to_be_empty()
    assert cells(page, "orders-value")[:3] == ["orders-value", "AVRO", "2"]
    assert cells(page, "seats-value")[1] == "JSON"
    expect(page.locator("#global")).to_contain_text("compatibility BACKWARD")

    page.get_by_label("Deleted").check()
    expect(page.locator("#list tbody tr").filter(has_text="gone")).to_contain_text("deleted")
    page.get_by_label("Search subjects by name").fill("VALUE")
    expect(page.locator("#list tbody tr")).to_have_count(3)
    assert "search=VALUE" in page.url
    page.get_by_role("link", name="people/value").click()
    expect(page.get_by_role("heading", name="people/value")).to_be_visible()
    expect(page.get_by_label("Schema", exact=True).first).to_contain_text('"shop.Address"')
    page.get_by_role("link", name="addresses version 1").click()
    expect(page.get_by_label("Where it is used")).to_contain_text("people/value version 1")


def test_versions_are_shown_as_text_and_compared(open_page: Open, broker: BrokerProcess) -> None:
    page = open_page("/console/schemas?subject=orders-value")
    text = page.locator("pre")
    expect(text).to_contain_text(json.dumps(EVIL))
    expect(page.get_by_role("combobox", name="Version")).to_have_value("2")
    used = page.get_by_label("Where it is used").get_by_role("link")
    expect(used).to_have_text(["orders", "returns"])
    # By keyboard alone.
    page.get_by_role("combobox", name="Compare with").focus()
    page.keyboard.press("End")
    expect(text.locator("ins").first).to_be_visible()
    assert [line.strip() for line in text.locator("ins").all_inner_texts()][1:4] == [
        "+     {", '+       "name": "item",', '+       "type": "string",'
    ]  # fmt: skip
    assert page.title() == "orders-value · Stele"
    assert page.locator("main img, main script").count() == 0

    again = open_page(page.url.removeprefix(broker.http_url))
    expect(again.locator("pre ins").first).to_be_visible()


def test_a_schema_is_checked_before_it_is_registered(open_page: Open, registry: httpx.Client) -> None:
    register(registry, "checked", record(ID))
    page = open_page("/console/schemas?subject=checked", may_fail=True)
    form = page.get_by_role("form", name="New version")
    text = form.get_by_label("Schema", exact=True)
    expect(text).to_have_value(json.dumps(json.loads(record(ID)), indent=2))
    text.fill(record(ID, {"name": "note", "type": "string"}))
    form.get_by_role("button", name="Check compatibility").click()
    expect(form.locator("li")).to_contain_text("note")
    form.get_by_role("button", name="Register").click()
    expect(form.locator(".notice")).to_contain_text("incompatible")
    assert registry.get("/subjects/checked/versions").json() == [1]

    text.fill(record(ID, {"name": "note", "type": "string", "default": EVIL}))
    form.get_by_role("button", name="Check compatibility").click()
    expect(form.get_by_role("status")).to_contain_text("It can be registered.")
    form.get_by_role("button", name="Register").click()
    expect(page.get_by_role("combobox", name="Version")).to_have_value("2")
    assert registry.get("/subjects/checked/versions").json() == [1, 2]
    text.fill("{")
    form.get_by_role("button", name="Register").click()
    expect(form.locator(".notice")).to_be_visible()


@pytest.mark.long
def test_a_subject_is_made_with_references(open_page: Open, registry: httpx.Client) -> None:
    page = open_page("/console/schemas")
    page.get_by_role("link", name="New subject").click()
    form = page.get_by_role("form", name="New version")
    form.get_by_label("Subject", exact=True).fill("homes/value")
    form.get_by_label("Schema", exact=True).fill(
        record({"name": "home", "type": "shop.Address"}, name="Home")
    )
    form.get_by_label("References").fill("shop.Address addresses")
    form.get_by_role("button", name="Register").click()
    expect(form.locator(".notice")).to_contain_text("NAME SUBJECT VERSION")
    form.get_by_label("References").fill("shop.Address addresses 1")
    form.get_by_role("button", name="Register").click()
    expect(page.get_by_role("heading", name="homes/value")).to_be_visible()
    expect(page.get_by_role("link", name="addresses version 1")).to_be_visible()
    (reference,) = registry.get("/subjects/homes%2Fvalue/versions/1").json()["references"]
    assert reference == {"name": "shop.Address", "subject": "addresses", "version": 1}
    registry.delete("/subjects/homes%2Fvalue")


@pytest.mark.long
def test_level_and_mode_are_set_and_taken_back(open_page: Open, registry: httpx.Client) -> None:
    register(registry, "ruled", '"string"')
    page = open_page("/console/schemas?subject=ruled", may_fail=True)
    tiles = page.locator("#subject .tiles")
    page.get_by_role("button", name="Set the compatibility…").click()
    level = page.get_by_role("dialog").get_by_label("Compatibility")
    assert set(level.locator("option").all_inner_texts()) == {"That of all subjects", *LEVELS}
    level.select_option("NONE")
    page.get_by_role("button", name="Set", exact=True).click()
    expect(tiles).to_contain_text("NONE")
    page.get_by_role("button", name="Set the mode…").click()
    page.get_by_role("dialog").get_by_label("Mode").select_option("READONLY")
    page.get_by_role("button", name="Set", exact=True).click()
    expect(tiles).to_contain_text("READONLY")
    form = page.get_by_role("form", name="New version")
    form.get_by_label("Schema", exact=True).fill('"int"')
    form.get_by_role("button", name="Register").click()
    expect(form.locator(".notice")).to_be_visible()
    # Twice: the second time there is nothing to take back.
    for _ in range(2):
        for name in ("mode", "compatibility"):
            page.get_by_role("button", name=f"Set the {name}…").click()
            page.get_by_role("dialog").get_by_role("combobox").select_option("")
            page.get_by_role("button", name="Set", exact=True).click()
            expect(page.get_by_role("dialog")).to_have_count(0)
    expect(tiles).to_contain_text("BACKWARD")
    assert registry.get("/config/ruled").status_code == registry.get("/mode/ruled").status_code == 404

    for permanent in (False, True):
        page.get_by_role("button", name="Delete the subject…").click()
        page.get_by_label("Type ruled to confirm").fill("ruled")
        page.get_by_role("button", name="Delete", exact=True).click()
        page.wait_for_url("**/console/schemas")
        assert ("ruled" in registry.get("/subjects?deleted=true").json()) is not permanent
        page.goto(f"{page.url}?subject=ruled")


@pytest.mark.long
def test_a_schema_is_found_by_its_id(open_page: Open, registry: httpx.Client) -> None:
    number = registry.get("/subjects/seats-value/versions/1").json()["id"]
    page = open_page(f"/console/schemas?id={number}")
    expect(page.get_by_role("heading", name="seats-value")).to_be_visible()
