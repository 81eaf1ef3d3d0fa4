"""Records whose values have a schema: shown as fields, and made with a form."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, expect
from stele.schemas import framing, json_schema
from stele.schemas.avro import parse
from stele.schemas.definitions import InvalidValue
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


def test_a_form_asks_for_the_fields_of_the_schema(open_page: Open, http: httpx.Client) -> None:
    page = open_page("/console/produce?topic=orders", may_fail=True)
    form = page.locator("#schema-field")
    check_accessibility(page)
    form.get_by_label("id long").fill(str(LARGE))
    form.get_by_label("color").select_option("BLUE")
    form.get_by_label("note: null").uncheck()
    form.get_by_label("note string").fill(EVIL)
    form.get_by_role("button", name="Add an item to lines").click()
    form.get_by_label("sku").fill("tea")
    form.get_by_label("pieces").fill("2.5")
    form.get_by_label("labels").fill('{"a": "b"}')
    page.get_by_role("button", name="Produce", exact=True).click()
    # What the broker refuses is shown at the field, which has the focus.
    wrong = form.get_by_label("pieces")
    expect(wrong).to_be_focused()
    expect(wrong).to_have_attribute("aria-invalid", "true")
    expect(form.get_by_role("alert")).to_contain_text("integer")
    wrong.fill("2")
    page.get_by_label("Key: no key").uncheck()
    key = page.get_by_label("Key long")
    key.fill("seven")
    page.get_by_role("button", name="Produce", exact=True).click()
    expect(key).to_be_focused()
    key.fill("7")
    page.get_by_role("button", name="Produce", exact=True).click()
    expect(page.locator("#receipt")).to_contain_text("1 record stored")
    expect(form.get_by_role("alert")).to_have_count(0)
    stored = last(http, "orders")
    assert stored["value"] == {
        "id": LARGE, "color": "BLUE", "note": EVIL, "at": "1970-01-01T00:00:00Z", "gift": False,
        "lines": [{"sku": "tea", "pieces": 2}], "labels": {"a": "b"},
    }  # fmt: skip
    assert (stored["key"], stored["schema"]["subject"]) == (7, "orders-value")
    assert is_clean(page)


@pytest.mark.long
def test_names_in_a_schema_are_text_and_values_can_be_json(open_page: Open, http: httpx.Client) -> None:
    page = open_page("/console/produce", may_fail=True)
    page.get_by_label("Topic", exact=True).fill("people")
    page.keyboard.press("Tab")
    form = page.locator("#schema-field")
    expect(form).to_contain_text(EVIL)
    assert is_clean(page)
    form.get_by_label(EVIL).first.fill("ada")
    form.get_by_label("home: left out").uncheck()
    form.get_by_label("city").fill("Berlin")
    form.get_by_role("tab", name="JSON").click()
    text = form.locator("textarea")
    assert json.loads(text.input_value()) == {EVIL: "ada", "home": {"city": "Berlin"}}
    text.fill(json.dumps({EVIL: "ada", "age": -1}))
    page.get_by_role("button", name="Produce", exact=True).click()
    expect(form.get_by_role("alert")).to_contain_text("/age")
    text.fill(json.dumps({EVIL: "ada", "age": 1}))
    page.get_by_role("button", name="Produce", exact=True).click()
    expect(page.locator("#receipt")).to_contain_text("1 record stored")
    assert last(http, "people")["value"] == {EVIL: "ada", "age": 1}


def in_record(*fields: Any) -> str:
    return json.dumps(
        {
            "type": "record",
            "name": "R",
            "fields": [{"name": f"f{i}", **field} for i, field in enumerate(fields)],
        }
    )


ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
AVRO = [
    *(json.dumps(name) for name in ("null", "boolean", "int", "long", "float", "double", "string", "bytes")),
    *(
        json.dumps({"type": base, "logicalType": logical})
        for base, logical in (
            ("int", "date"), ("int", "time-millis"), ("long", "time-micros"), ("long", "timestamp-millis"),
            ("long", "local-timestamp-micros"), ("string", "uuid"), ("int", "unknown"),
        )
    ),
    '{"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}',
    '{"type": "fixed", "name": "D", "size": 12, "logicalType": "duration"}',
    '{"type": "array", "items": {"type": "map", "values": "int"}}',
    '{"type": "fixed", "name": "F", "size": 3}',
    '["int", "string"]',
    '["null", {"type": "array", "items": "int"}]',
    in_record({"type": ENUM}, {"type": ["null", "E"]}, {"type": {"type": "array", "items": "E"}}, {"type": "E", "default": "B"}),
    '{"type": "record", "name": "a.b.Node", "fields": [{"name": "next", "type": ["null", "Node"]}, {"name": "other", "type": ["null", "a.b.Node"]}]}',
    '{"type": "record", "name": "List", "fields": [{"name": "more", "type": {"type": "array", "items": "List"}, "default": []}]}',
]  # fmt: skip
JSON_SCHEMAS = [
    "{}", "true", '{"type": "string", "format": "uuid"}', '{"type": ["integer", "null"]}', '{"enum": [1, "a"]}', '{"const": {"a": 1}}',
    '{"type": "array", "items": {"type": "number"}}', '{"type": "array"}',
    '{"anyOf": [{"$ref": "#/$defs/a~1b"}, {"type": "null"}], "$defs": {"a/b": {"type": "object", "required": ["x"], "properties": {"x": {"type": "boolean"}}}}}',
    '{"type": "object", "properties": {"self": {"$ref": "#"}}}', '{"$ref": "#/$defs/loop", "$defs": {"loop": {}}}',
    '{"properties": {"__proto__": {"type": "string"}}, "required": ["__proto__"]}',
]  # fmt: skip


@pytest.mark.long
def test_an_example_is_a_value_of_its_schema(open_page: Open) -> None:
    page = open_page("/console/produce")
    example = """async ([schema, schemaType]) => {
        const address = document.querySelector("script[src$='produce.js']").src.replace("produce.js", "schema-shape.js");
        const { exampleOf, shapeOf } = await import(address);
        return exampleOf(shapeOf({ schema, schemaType })) ?? "null";
    }"""
    for kind, parsed, schemas in (("AVRO", parse, AVRO), ("JSON", json_schema.parse, JSON_SCHEMAS)):
        for schema in schemas:
            made = page.evaluate(example, [schema, kind])
            try:
                parsed(schema, {}).encode(json.loads(made))
            except InvalidValue as error:
                pytest.fail(f"{made} is no value of {schema}: {error}")
