"""Records whose values have a schema: shown as fields, and made with a form."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, expect
from stele.schemas import framing
from stele.schemas.avro import parse
from stele.testing import BrokerProcess, run_broker

from .accessibility import check_accessibility
from .conftest import Open

EVIL = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
# The first integer that a number of JavaScript cannot hold.
LARGE = 2**53 + 1
LINE = {
    "type": "record",
    "name": "Line",
    "fields": [{"name": "sku", "type": "string"}, {"name": "pieces", "type": "int"}],
}
ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "id", "type": "long", "doc": EVIL},
            {"name": "color", "type": {"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]}},
            {"name": "note", "type": ["null", "string"], "default": None},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 0},
            {"name": "gift", "type": "boolean"},
            {"name": "lines", "type": {"type": "array", "items": LINE}},
            {"name": "labels", "type": {"type": "map", "values": "string"}},
        ],
    }
)
PERSON = json.dumps(
    {
        "type": "object",
        "required": [EVIL],
        "properties": {
            EVIL: {"type": "string", "description": EVIL},
            "age": {"type": "integer", "minimum": 0},
            "home": {"$ref": "#/$defs/Home"},
        },
        "$defs": {
            "Home": {"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}}}
        },
    }
)


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with run_broker() as running:
        with httpx.Client(base_url=running.registry_url) as registry:
            for subject, schema, kind in (
                ("orders-value", ORDER, "AVRO"),
                ("orders-key", '"long"', "AVRO"),
                ("people-value", PERSON, "JSON"),
            ):
                body = {"schema": schema, "schemaType": kind}
                assert registry.post(f"/subjects/{subject}/versions", json=body).status_code == 200
        with httpx.Client(base_url=running.http_url) as http:
            for topic in ("orders", "people"):
                configs = {"stele.value.schema.validation": "content"}
                assert http.put(f"/v1/topics/{topic}", json={"configs": configs}).status_code == 201
        yield running


def order(**fields: Any) -> bytes:
    value: dict[str, Any] = {
        "id": LARGE,
        "color": "BLUE",
        "gift": True,
        "lines": [{"sku": EVIL, "pieces": 2}],
        "labels": {},
    }
    return parse(ORDER, {}).encode(value | fields)


def schema_id(broker: BrokerProcess, subject: str) -> int:
    return httpx.get(f"{broker.registry_url}/subjects/{subject}/versions/1").json()["id"]


def store(http: httpx.Client, topic: str, value: bytes, key: bytes | None = None) -> None:
    record = {"value_b64": base64.b64encode(value).decode()}
    if key is not None:
        record["key_b64"] = base64.b64encode(key).decode()
    answer = http.post(f"/v1/topics/{topic}/records", json={"records": [record]})
    assert answer.status_code == 200, answer.text


def last(http: httpx.Client, topic: str) -> dict[str, Any]:
    return http.get(f"/v1/topics/{topic}/partitions/0/records").json()["records"][-1]


def is_clean(page: Page) -> bool:
    return "owned" not in page.title() and page.locator("main img, main script").count() == 0


def test_a_value_with_a_schema_is_shown_as_its_fields(
    open_page: Open, http: httpx.Client, broker: BrokerProcess
) -> None:
    value, key = (
        framing.join(schema_id(broker, "orders-value"), order()),
        framing.join(schema_id(broker, "orders-key"), b"\x0e"),
    )
    store(http, "orders", value, key)
    page = open_page("/console/messages?topic=orders&start=oldest&limit=1&go=1")
    row = page.locator("tr.record")
    expect(row).to_contain_text(f'{{"id":{LARGE},"color":"BLUE"')
    row.locator("button.open").click()
    detail = page.locator("tr.detail")
    expect(detail.locator(".tree > li > ul > li").first).to_have_text(f"id: {LARGE}")
    expect(detail.locator(".tree")).to_contain_text(EVIL)
    expect(detail.get_by_role("link", name="orders-key version 1")).to_be_visible()
    check_accessibility(page)
    assert is_clean(page)

    # By keyboard alone.
    detail.locator("summary").first.focus()
    page.keyboard.press("Enter")
    expect(detail.get_by_text("sku")).to_be_hidden()
    page.get_by_role("tab", name="Fields").focus()
    page.keyboard.press("ArrowRight")
    expect(detail.locator("pre")).to_contain_text(f'"id": {LARGE},')
    page.keyboard.press("ArrowRight")
    expect(detail.locator("pre")).to_contain_text("00000000  00 00 00 00")
    detail.get_by_role("link", name="orders-value version 1").click()
    expect(page.get_by_role("heading", name="orders-value")).to_be_visible()


@pytest.mark.long
def test_a_record_with_a_schema_is_sent_again_byte_for_byte(
    open_page: Open, http: httpx.Client, broker: BrokerProcess
) -> None:
    value = framing.join(schema_id(broker, "orders-value"), order(note="again"))
    store(http, "orders", value)
    offset = last(http, "orders")["offset"]
    page = open_page(f"/console/produce?topic=orders&replay=orders/0/{offset}")
    page.get_by_role("button", name="Send again").click()
    expect(page.locator("#receipt")).to_contain_text("1 record stored")
    raw = http.get(f"/v1/topics/orders/partitions/0/records/{offset + 1}?decode=raw").json()
    assert base64.b64decode(raw["value_b64"]) == value


@pytest.mark.long
def test_a_table_has_one_row_per_key_with_a_schema(
    open_page: Open, http: httpx.Client, broker: BrokerProcess
) -> None:
    http.put("/v1/topics/newest", json={"configs": {"cleanup.policy": "compact"}})
    number, value = schema_id(broker, "orders-key"), schema_id(broker, "orders-value")
    for key, note in ((b"\x02", "first"), (b"\x04", "other"), (b"\x02", "second")):
        store(http, "newest", framing.join(value, order(note=note)), framing.join(number, key))
    page = open_page("/console/topics?topic=newest&tab=table")
    rows = page.locator("tr.record")
    expect(rows).to_have_count(2)
    expect(rows.last.locator("td").nth(1)).to_have_text("1")
    expect(rows.last).to_contain_text('"note":"second"')
    deletion = {"key_b64": base64.b64encode(framing.join(number, b"\x02")).decode(), "value": None}
    http.post("/v1/topics/newest/records", json={"records": [deletion]})
    expect(rows).to_have_count(1)
