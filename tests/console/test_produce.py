"""The Produce screen: single records, files, and records sent again."""

from __future__ import annotations

import re
from typing import Any

import httpx
from playwright.sync_api import expect

from .conftest import Open


def stored(http: httpx.Client, topic: str) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = http.get(f"/v1/topics/{topic}/partitions/0/records").json()["records"]
    return [
        {name: record.get(name) for name in ("key", "value", "value_b64", "headers")} for record in records
    ]


def test_a_record_is_produced_with_key_headers_and_partition(open_page: Open, http: httpx.Client) -> None:
    http.put("/v1/topics/written", json={"partitions": 2})
    page = open_page("/console/produce?topic=written")
    page.get_by_label("Key", exact=True).fill("N14228")
    page.get_by_label("Partition", exact=True).fill("1")
    page.get_by_label("Value", exact=True).fill("grüße")
    page.get_by_role("button", name="Add a header").click()
    page.get_by_label("Header name").fill("source")
    page.get_by_label("Header value").fill("console")
    page.get_by_role("button", name="Produce", exact=True).click()
    expect(page.locator("#receipt")).to_contain_text("1 record stored")
    expect(page.locator("#receipt")).to_contain_text("synced")

    (record,) = http.get("/v1/topics/written/partitions/1/records").json()["records"]
    assert (record["key"], record["value"]) == ("N14228", "grüße")
    assert record["headers"] == [{"key": "source", "value": "console"}]

    page.get_by_role("link", name="view", exact=True).click()
    expect(page.locator("tr.record")).to_contain_text("grüße")


def test_json_is_checked_and_stored_as_it_was_typed(open_page: Open, http: httpx.Client) -> None:
    page = open_page("/console/produce?topic=typed")
    page.locator("select[name=kind]").select_option("json")
    page.get_by_label("Value", exact=True).fill('{"id": 12345678901234567890, ')
    page.get_by_role("button", name="Produce", exact=True).click()
    expect(page.locator("#notice")).to_contain_text("This is not JSON")
    page.get_by_label("Value", exact=True).fill('{"id": 12345678901234567890}')
    page.get_by_role("button", name="Produce", exact=True).click()
    expect(page.locator("#receipt")).to_contain_text("1 record stored")
    assert [record["value"] for record in stored(http, "typed")] == ['{"id": 12345678901234567890}']


def test_a_tombstone_needs_a_key(open_page: Open, http: httpx.Client) -> None:
    page = open_page("/console/produce?topic=tombs")
    page.locator("select[name=kind]").select_option("tombstone")
    page.get_by_role("button", name="Produce", exact=True).click()
    expect(page.locator("#notice")).to_contain_text("give the key")
    page.get_by_label("Key", exact=True).fill("gone")
    page.get_by_role("button", name="Produce", exact=True).click()
    expect(page.locator("#receipt")).to_contain_text("1 record stored")
    assert stored(http, "tombs") == [{"key": "gone", "value": None, "value_b64": None, "headers": []}]


def test_a_file_becomes_one_record_or_one_for_each_line(open_page: Open, http: httpx.Client) -> None:
    page = open_page("/console/produce?topic=files")
    for kind, data in (
        ("file", b"\x00\xff\xfe"),
        ("lines", b"first\nsecond\r\n\nthird"),
        ("ndjson", b'{"key":"k","value":{"a":1}}\n{"value_b64":"AP8="}\n'),
    ):
        page.locator("select[name=kind]").select_option(kind)
        page.locator("#file").set_input_files({"name": "f", "mimeType": "text/plain", "buffer": data})
        page.get_by_role("button", name="Produce", exact=True).click()
        expect(page.locator("#receipt")).to_contain_text(
            {"file": "1 record stored", "lines": "3 records stored", "ndjson": "2 records stored"}[kind]
        )
    values = [record["value"] or record["value_b64"] for record in stored(http, "files")]
    assert values == ["AP/+", "first", "second", "third", '{"a":1}', "AP8="]


def test_a_file_of_records_is_stored_with_the_digits_that_it_has(open_page: Open, http: httpx.Client) -> None:
    page = open_page("/console/produce?topic=digits")
    page.locator("select[name=kind]").select_option("ndjson")
    data = b'{"value":{"id":12345678901234567890,"p":1.10,"a":1,"a":2}}\r\n{"value":1e400}\n'
    page.locator("#file").set_input_files({"name": "f", "mimeType": "text/plain", "buffer": data})
    page.get_by_role("button", name="Produce", exact=True).click()
    expect(page.locator("#receipt")).to_contain_text("2 records stored")
    values = [record["value"] for record in stored(http, "digits")]
    assert values == ['{"id":12345678901234567890,"p":1.10,"a":1,"a":2}', "1e400"]


def test_an_invalid_json_line_is_shown_and_nothing_of_the_file_is_stored(open_page: Open) -> None:
    page = open_page("/console/produce?topic=broken-lines")
    page.locator("select[name=kind]").select_option("ndjson")
    data = b'{"value":1}\n{"value":1},{"value":2}\n'
    page.locator("#file").set_input_files({"name": "f", "mimeType": "text/plain", "buffer": data})
    page.get_by_role("button", name="Produce", exact=True).click()
    expect(page.locator("#notice")).to_contain_text("Line 2 of f is not JSON")


def test_a_record_that_the_broker_refuses_is_shown_with_the_error(open_page: Open) -> None:
    page = open_page("/console/produce?topic=refused", may_fail=True)
    page.locator("select[name=kind]").select_option("base64")
    page.get_by_label("Value", exact=True).fill("###")
    page.get_by_role("button", name="Produce", exact=True).click()
    expect(page.locator("#notice")).to_contain_text("value_b64 is not valid base64")


def test_a_selection_is_sent_again_to_another_topic_byte_for_byte(
    open_page: Open, http: httpx.Client
) -> None:
    records = [
        {"key": "a", "value": '{"n": 1.0}', "headers": [{"key": "h", "value_b64": "/w=="}]},
        {"key_b64": "/v8=", "value_b64": "AAEC"},
        {"key": "c", "value": None},
    ]
    http.post("/v1/topics/first/records", json={"records": records})
    page = open_page("/console/messages?topic=first&start=oldest&go=1")
    for offset in (0, 1, 2):
        page.get_by_label(f"Select record 0:{offset}").check()
    page.get_by_role("link", name="Send 3 again…").click()
    expect(page.locator("#replay tbody tr")).to_have_count(3)
    page.locator("#replay").get_by_label("To topic").fill("second")
    page.locator("#replay").get_by_label("Add a header with the original position").uncheck()
    page.get_by_role("button", name="Send again").click()
    expect(page.locator("#receipt")).to_contain_text("3 records stored")
    fields = ("key", "key_b64", "value", "value_b64", "headers")

    def contents(topic: str) -> list[dict[str, Any]]:
        records = http.get(f"/v1/topics/{topic}/partitions/0/records").json()["records"]
        return [{name: record[name] for name in fields if name in record} for record in records]

    assert contents("second") == contents("first")

    page.locator("#replay").get_by_label("Add a header with the original position").check()
    page.get_by_role("button", name="Send again").click()
    expect(page.locator("#receipt td.mono").nth(1)).to_have_text(re.compile("3"))
    marked = http.get("/v1/topics/second/partitions/0/records?from=3").json()["records"]
    assert [record["headers"][-1] for record in marked] == [
        {"key": "stele.replayed", "value": f"first/0/{offset}"} for offset in (0, 1, 2)
    ]
