"""The Messages screen: jumps, filters, live tail, Stop, exports, hostile values."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from confluent_kafka import Producer
from playwright.sync_api import Page, Request, expect
from stele.testing import BrokerProcess

from load.demo_flights import Flight

from .conftest import FLIGHTS, Open, flights
from .test_screens import wait_until

# Enough that a search which decodes each value is still going on when its Stop is pressed.
MANY = 300_000
LARGE = 10 * 1024 * 1024


def metric(http: httpx.Client, name: str) -> float:
    match = re.search(rf"^{re.escape(name)} (\S+)$", http.get("/metrics").text, re.MULTILINE)
    assert match, f"{name} is not in /metrics"
    return float(match[1])


def rows(page: Page) -> list[str]:
    return [row.get_attribute("data-id") or "" for row in page.locator("tr.record").all()]


def test_nothing_is_asked_of_the_broker_before_the_question_is_complete(open_page: Open) -> None:
    page = open_page("/console/messages")
    urls: list[str] = []

    def note(request: Request) -> None:
        if "/v1/" in request.url and "/v1/topics?" not in request.url:
            urls.append(request.url)

    page.on("request", note)
    page.get_by_label("Topic", exact=True).fill("flights")
    page.locator("select[name=start]").select_option("offset")
    page.get_by_role("button", name="Search").click()
    expect(page.locator("input[name=offset]")).to_be_focused()
    assert urls == []
    page.get_by_label("Offset", exact=True).fill("41")
    page.get_by_label("Partitions").fill("1")
    page.get_by_label("Limit").fill("3")
    page.get_by_role("button", name="Search").click()
    expect(page.locator("tr.record")).to_have_count(3)
    assert rows(page) == ["flights/1/41", "flights/1/42", "flights/1/43"]
    assert len(urls) == 1


def test_a_link_opens_what_was_seen_and_going_on_shows_what_follows(
    open_page: Open, broker: BrokerProcess
) -> None:
    page = open_page("/console/messages?topic=flights&start=newest&partitions=2&limit=5&go=1")
    expect(page.locator("tr.record")).to_have_count(5)
    newest = rows(page)
    offsets = [int(record.rpartition("/")[2]) for record in newest]
    assert offsets == list(range(offsets[0], offsets[0] - 5, -1))

    again = open_page(page.url.removeprefix(broker.http_url))
    expect(again.locator("tr.record")).to_have_count(5)
    assert rows(again) == newest

    page.get_by_role("button", name="Continue").click()
    expect(page.locator("tr.record")).to_have_count(10)
    assert rows(page)[5] == f"flights/2/{offsets[-1] - 1}"


def test_a_time_is_jumped_to(open_page: Open, http: httpx.Client) -> None:
    http.post(
        "/v1/topics/timed/records",
        json={
            "records": [
                {"value": str(hour), "timestamp": 1763658000000 + hour * 3600_000} for hour in range(5)
            ]
        },
    )
    page = open_page("/console/messages?topic=timed", timezone_id="Europe/Berlin")
    page.locator("select[name=start]").select_option("time")
    # 19:00 in Berlin is 18:00 UTC: the second record.
    page.get_by_label("Time (local)").fill("2025-11-20T19:00:00")
    page.get_by_role("button", name="Search").click()
    expect(page.locator("tr.record")).to_have_count(4)
    expect(page.locator("tr.record").first).to_contain_text("2025-11-20 19:00:00")


@pytest.mark.every(3)
@pytest.mark.parametrize(
    ("label", "text"),
    [
        ("Key contains", "=N14228"),
        ("Value contains", '"carrier":"B6"'),
        ("Header", "row:=17"),
        ("JSON path", "dep_delay > 60"),
        ("JSON path", "carrier == UA"),
    ],
)
def test_records_are_filtered_on_the_server(open_page: Open, label: str, text: str) -> None:
    tests: dict[str, Callable[[Flight], bool]] = {
        "=N14228": lambda flight: flight.key == "N14228",
        '"carrier":"B6"': lambda flight: '"carrier":"B6"' in flight.value,
        "row:=17": lambda flight: flight.row == 17,
        "dep_delay > 60": lambda flight: (json.loads(flight.value).get("dep_delay") or 0) > 60,
        "carrier == UA": lambda flight: json.loads(flight.value)["carrier"] == "UA",
    }
    expected = sum(map(tests[text], flights(FLIGHTS)))
    assert 0 < expected < FLIGHTS

    page = open_page("/console/messages?topic=flights")
    page.get_by_label(label).fill(text)
    page.get_by_label("Limit").fill("10000")
    page.get_by_role("button", name="Search").click()
    expect(page.locator("#status")).to_contain_text("all records scanned")
    expect(page.locator("#status")).to_contain_text(
        f"{expected:,} found · {FLIGHTS:,} of {FLIGHTS:,} scanned"
    )
    expect(page.locator("tr.record")).to_have_count(expected)


def test_a_live_tail_shows_a_record_produced_over_the_kafka_listener(
    open_page: Open, broker: BrokerProcess, http: httpx.Client
) -> None:
    http.put("/v1/topics/live", json={"partitions": 2})
    page = open_page("/console/messages?topic=live")
    page.get_by_label("Key contains").fill("wanted")
    page.get_by_role("button", name="Live tail").click()
    expect(page.locator("#status")).to_have_text("Live: waiting for records")

    producer = Producer({"bootstrap.servers": broker.kafka_bootstrap})
    producer.produce("live", key="wanted-1", value="through Kafka", headers=[("from", b"librdkafka")])
    producer.produce("live", key="other", value="filtered out")
    producer.flush()
    expect(page.locator("tr.record")).to_have_count(1)
    expect(page.locator("tr.record")).to_contain_text("through Kafka")
    page.locator("tr.record button.open").click()
    expect(page.locator("tr.detail")).to_contain_text("librdkafka")

    open_before = len(http.get("/v1/connections").json()["connections"])
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#status")).to_contain_text("Stopped")
    # The stream is closed on the broker's side too.
    wait_until(lambda: len(http.get("/v1/connections").json()["connections"]) < open_before, page)


@pytest.mark.slow
def test_stop_ends_the_scan_on_the_server(open_page: Open, broker: BrokerProcess, http: httpx.Client) -> None:
    producer = Producer(
        {
            "bootstrap.servers": broker.kafka_bootstrap,
            "linger.ms": 20,
            "queue.buffering.max.messages": MANY,
            "queue.buffering.max.kbytes": 1_000_000,
        }
    )
    value = json.dumps({"carrier": "UA", "legs": [{"from": "EWR", "to": "IAH"}] * 12, "dep_delay": 1})
    for number in range(MANY):
        producer.produce("many", value=value)
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0
    before = {
        name: metric(http, name)
        for name in ('stele_searches_total{end="stopped"}', "stele_search_scanned_records_total")
    }

    page = open_page("/console/messages?topic=many&start=oldest&json=legs[3].from%20%3D%3D%20nowhere&go=1")
    expect(page.get_by_role("progressbar")).to_be_visible()
    expect(page.locator("#status")).to_contain_text(re.compile(r"0 found · [1-9][\d,]* of 300,000"))
    assert metric(http, "stele_searches_active") == 1
    page.get_by_role("button", name="Stop").click()

    wait_until(lambda: metric(http, "stele_searches_active") == 0, page)
    expect(page.get_by_role("button", name="Search")).to_be_enabled()
    expect(page.locator("#status")).to_contain_text("Stopped")
    assert (
        metric(http, 'stele_searches_total{end="stopped"}')
        == before['stele_searches_total{end="stopped"}'] + 1
    )
    scanned = (
        metric(http, "stele_search_scanned_records_total") - before["stele_search_scanned_records_total"]
    )
    assert 0 < scanned < MANY


def test_what_matches_is_exported_exactly_and_for_a_spreadsheet(
    open_page: Open, http: httpx.Client, tmp_path: Path
) -> None:
    http.post(
        "/v1/topics/exported/records",
        json={
            "records": [
                {"key": "k", "value": "=HYPERLINK(1)", "headers": [{"key": "h", "value": "1"}]},
                {"value_b64": "//4="},
                {"key": "gone", "value": None},
            ]
        },
    )
    page = open_page("/console/messages?topic=exported&start=oldest")
    with page.expect_download() as exported:
        page.get_by_role("button", name="Export NDJSON").click()
    exported.value.save_as(tmp_path / "out.ndjson")
    assert exported.value.suggested_filename == "exported.ndjson"
    exported_records = [json.loads(line) for line in (tmp_path / "out.ndjson").read_text().splitlines()]
    assert exported_records == http.get("/v1/topics/exported/partitions/0/records").json()["records"]

    with page.expect_download() as exported:
        page.get_by_role("button", name="Export CSV").click()
    exported.value.save_as(tmp_path / "out.csv")
    lines = list(csv.DictReader(io.StringIO((tmp_path / "out.csv").read_text())))
    assert [line["value"] for line in lines] == ["'=HYPERLINK(1)", "", ""]
    assert lines[1]["value_b64"] == "//4="


def test_values_with_markup_or_scripts_are_shown_as_text(open_page: Open, http: httpx.Client) -> None:
    evil = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
    http.put("/v1/topics/hostile", json={"configs": {"max.message.bytes": 2 * LARGE}})
    http.post(
        "/v1/topics/hostile/records",
        json={
            "records": [
                {"key": evil, "value": evil, "headers": [{"key": evil, "value": evil}]},
                {"value_b64": "//48c2NyaXB0PgD/"},
                {"value": json.dumps({"__proto__": {"owned": 1}, "html": evil})},
                {"value": "\u202e\u0000\u0007 right to left and control"},
                {"value": None},
            ]
        },
    )
    large = http.post(
        "/v1/topics/hostile/records",
        content=b"L" * LARGE,
        headers={"content-type": "application/octet-stream"},
    )
    assert large.status_code == 200, large.text

    page = open_page("/console/messages?topic=hostile&start=oldest&go=1")
    expect(page.locator("tr.record")).to_have_count(6)
    for opened in page.locator("tr.record button.open").all():
        opened.click()
    expect(page.locator("tr.detail pre")).to_have_count(6)
    for name in ("Text", "Hex", "JSON"):
        for tab in page.get_by_role("tab", name=name).all():
            tab.click()
    assert page.title() == "Messages · Stele"
    assert page.locator("main img, main script, main iframe").count() == 0
    assert page.evaluate("({}).owned") is None
    expect(page.locator("tr.detail").first).to_contain_text(evil)
    expect(page.locator("tr.detail").nth(1)).to_contain_text("ff fe 3c 73")
    # Of ten megabytes a part is shown; all of them are a download.
    last = page.locator("tr.detail").last
    expect(last).to_contain_text("10 MiB, the first 256 KiB are shown")
    with page.expect_download() as whole:
        last.get_by_role("link", name="Download value").click()
    assert Path(whole.value.path()).read_bytes() == b"L" * LARGE


def test_json_is_shown_and_copied_as_it_was_written(open_page: Open, http: httpx.Client) -> None:
    value = '{"id":12345678901234567890,"p":1.10,"a":1,"a":{"b":[],"c":{}},"t":"\\u00e9, [\\"x\\"]: {","l":[1e400,null]}'
    http.post("/v1/topics/written-so/records", json={"records": [{"value": value}]})
    page = open_page(
        "/console/messages?topic=written-so&start=oldest&go=1",
        permissions=["clipboard-read", "clipboard-write"],
    )
    page.locator("tr.record button.open").first.click()
    detail = page.locator("tr.detail")
    shown = (
        '{\n  "id": 12345678901234567890,\n  "p": 1.10,\n  "a": 1,\n  "a": {\n    "b": [],\n    "c": {}\n  },\n'
        '  "t": "\\u00e9, [\\"x\\"]: {",\n  "l": [\n    1e400,\n    null\n  ]\n}'
    )
    assert detail.locator("pre").text_content() == shown
    detail.get_by_role("button", name="Copy what is shown").click()
    expect(page.get_by_text("Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == shown


def test_json_that_is_nested_too_deep_to_be_indented_is_shown_as_its_text(
    open_page: Open, http: httpx.Client
) -> None:
    deep = "[" * 5000 + "]" * 5000
    http.post("/v1/topics/deep/records", json={"records": [{"value": deep}]})
    page = open_page("/console/messages?topic=deep&start=oldest&go=1")
    page.locator("tr.record button.open").click()
    expect(page.get_by_role("tab")).to_have_text(["Text", "Hex"])
    expect(page.locator("tr.detail pre")).to_have_text(deep)


def test_a_record_is_copied_as_curl(open_page: Open, broker: BrokerProcess) -> None:
    page = open_page(
        "/console/messages?topic=flights&start=offset&offset=7&partitions=0&limit=1&go=1",
        permissions=["clipboard-read", "clipboard-write"],
    )
    page.locator("tr.record button.open").click()
    page.locator("tr.detail").get_by_role("button", name="Copy as curl").click()
    expect(page.get_by_text("Copied")).to_be_visible()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == f"curl -sN '{broker.http_url}/v1/topics/flights/partitions/0/records/7'"


def test_a_refused_tail_shows_the_reason(open_page: Open) -> None:
    page = open_page("/console/messages?topic=flights&live=1&json=%5B%5B", may_fail=True)
    expect(page.locator("#notice")).to_contain_text("json path '[['")
    expect(page.get_by_role("button", name="Live tail")).to_be_enabled()


def test_a_missing_topic_shows_the_brokers_error(open_page: Open) -> None:
    page = open_page("/console/messages?topic=nowhere&go=1", may_fail=True)
    expect(page.locator("#notice")).to_contain_text("nowhere")
