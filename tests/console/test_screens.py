"""The screens, with a real broker and a real browser; ``test_access`` has the one for administrators."""

from __future__ import annotations

import itertools
import json
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from confluent_kafka import Consumer, Producer
from playwright.sync_api import Page, Route, expect
from stele import Client
from stele.operations.leases import Ack, Poll
from stele.testing import BrokerProcess

from tests.support.variants import long_but

from .accessibility import check_accessibility
from .conftest import FLIGHTS, Open, flights

SCREENS = {
    "overview": "/",
    "topics": "/console/topics",
    "topic": "/console/topics?topic=flights",
    "messages": "/console/messages?topic=flights&start=newest&json=dep_delay%20%3E%2060&limit=12&go=1",
    "produce": "/console/produce?topic=flights-again&replay=flights/0/1,flights/1/2",
    "sql": "/console/sql",
    "schemas": "/console/schemas",
    "schema": "/console/schemas?subject=gates-value&version=2&with=1",
    "mirrors": "/console/mirrors",
    "cdc": "/console/cdc",
    "groups": "/console/groups",
    "group": "/console/groups?group=delays",
    "transactions": "/console/transactions",
    "storage": "/console/storage?topic=flights&partition=0",
}


# The text of each cell of a table of which the screen shows a part only.
CUT_CELLS = """
    [...document.querySelectorAll("tbody td, tbody th")]
        .filter((cell) => cell.checkVisibility())
        .filter((cell) => cell.scrollWidth > cell.clientWidth + 1 || cell.getBoundingClientRect().right > innerWidth)
        .map((cell) => cell.textContent)
"""


def wait_until(condition: Callable[[], bool], page: Page) -> None:
    """Let the browser run until ``condition`` holds."""
    for _ in range(400):
        if condition():
            return
        page.wait_for_timeout(50)
    raise AssertionError("the condition did not become true")


@pytest.fixture(scope="module")
def delays(broker: BrokerProcess) -> str:
    """A group whose Kafka consumer has read some flights, committed and left."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.kafka_bootstrap,
            "group.id": "delays",
            "client.id": "delays-1",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["flights"])
    # More than any two of the partitions hold.
    wanted = FLIGHTS * 5 // 6
    assert len(consumer.consume(wanted, timeout=30)) == wanted
    consumer.commit(asynchronous=False)
    consumer.close()
    return "delays"


@pytest.fixture(scope="module")
def gates(broker: BrokerProcess) -> None:
    """A subject with two versions."""
    fields = [
        {"name": "gate", "type": "string"},
        {"name": "since", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ]
    with httpx.Client(base_url=broker.registry_url) as registry:
        for more in ([], [{"name": "flight", "type": ["null", "string"], "default": None}]):
            record = {"type": "record", "name": "Gate", "namespace": "airport", "fields": fields + more}
            made = registry.post("/subjects/gates-value/versions", json={"schema": json.dumps(record)})
            assert made.status_code == 200, made.text


@pytest.fixture(scope="module")
def traffic(broker: BrokerProcess, screenshots: Path | None) -> Iterator[None]:
    """Traffic over all protocols at changing rates for screenshots; none if none are taken."""
    if screenshots is None:
        yield
        return
    ending = threading.Event()
    producer = Producer({"bootstrap.servers": broker.kafka_bootstrap, "client.id": "departures"})

    def run() -> None:
        given = flights(FLIGHTS)
        with Client(broker.binary_url) as binary, httpx.Client(base_url=broker.http_url) as http:
            for turn in itertools.count():
                if ending.wait(0.1):
                    return
                batch = [given[(turn * 37 + index) % FLIGHTS] for index in range(400 + 300 * (turn // 7 % 5))]
                for flight in batch:
                    producer.produce("departures", flight.value, key=flight.key)
                producer.poll(0)
                binary.produce("gates", batch[0].value.encode() * 20)
                lines = [{"key": flight.key, "value": flight.value} for flight in batch[:20]]
                http.post("/v1/topics/arrivals/records", json={"records": lines})

    thread = threading.Thread(target=run)
    thread.start()
    with httpx.Client(base_url=broker.http_url) as http:
        while len(http.get("/v1/overview/history").json()["at"]) < 60:
            ending.wait(0.5)
    yield
    ending.set()
    thread.join()
    producer.flush()


def ready(page: Page, name: str) -> None:
    """Wait until a screen shows its data."""
    if name == "overview":
        expect(page.locator("#listeners tbody tr")).to_have_count(4)
        expect(page.locator(".chart path.line").first).to_have_attribute("d", re.compile("L"))
    elif name == "topics":
        expect(page.get_by_role("link", name="flights", exact=True)).to_be_visible()
    elif name == "topic":
        expect(page.get_by_role("table", name="Partitions").locator("tbody tr")).to_have_count(3)
    elif name == "messages":
        expect(page.locator("tr.record")).to_have_count(12)
        page.locator("tr.record button.open").first.click()
        expect(page.locator("tr.detail pre")).to_contain_text("dep_delay")
    elif name == "produce":
        expect(page.locator("#replay tbody tr")).to_have_count(2)
    elif name == "sql":
        expect(page.locator("#statement")).to_be_visible()
    elif name == "mirrors":
        expect(page.get_by_text("No mirrors yet")).to_be_visible()
    elif name == "schemas":
        expect(page.locator("#list tbody tr")).to_contain_text("BACKWARD")
        expect(page.locator("#global")).to_be_visible()
    elif name == "schema":
        expect(page.locator("pre ins").first).to_be_visible()
        expect(page.get_by_label("Where it is used")).to_contain_text("Topics")
    elif name == "groups":
        expect(page.get_by_role("link", name="delays", exact=True)).to_be_visible()
    elif name == "group":
        expect(page.locator("#partitions tbody tr")).to_have_count(3)
        expect(page.locator("svg.spark").first).to_be_visible()
    elif name == "transactions":
        expect(page.get_by_text("No transaction is open.")).to_be_visible()
    elif name == "cdc":
        expect(page.get_by_text("This broker runs no connector.")).to_be_visible()
    else:
        expect(page.get_by_text("being written")).to_be_visible()
        expect(page.locator("#connections tbody tr").first).to_be_visible()


@pytest.mark.usefixtures("delays", "traffic", "gates")
@pytest.mark.parametrize("name", long_but(SCREENS, "groups"))
def test_a_screen_can_be_used_by_everybody(open_page: Open, screenshots: Path | None, name: str) -> None:
    page = open_page(SCREENS[name])
    ready(page, name)

    check_accessibility(page)
    if screenshots is not None:
        page.screenshot(path=screenshots / f"{name}.png")
        if name == "overview":
            page.emulate_media(color_scheme="dark")
            page.screenshot(path=screenshots / f"{name}-dark.png")

    # It fits on a phone.
    page.set_viewport_size({"width": 390, "height": 800})
    page.wait_for_function("document.documentElement.scrollWidth <= window.innerWidth")
    assert page.evaluate(CUT_CELLS) == []
    if screenshots is not None and name == "messages":
        page.screenshot(path=screenshots / "messages-phone.png")


def test_the_overview_shows_what_goes_through_each_protocol(
    open_page: Open, broker: BrokerProcess, http: httpx.Client
) -> None:
    page = open_page("/")
    expect(page.locator("#state")).to_have_text("ready")
    expect(page.locator("#health")).to_contain_text("ready")

    producer = Producer({"bootstrap.servers": broker.kafka_bootstrap})
    producer.produce("from-kafka", b"x" * 50_000)
    producer.flush()

    kafka = page.locator("tr[data-listener=kafka] td")
    expect(kafka.nth(5)).to_have_text(re.compile("[KM]iB"))
    assert http.get("/v1/overview").json()["listeners"][2]["bytes_in"] > 50_000


def test_topics_are_made_edited_purged_and_deleted_with_the_name_typed(
    open_page: Open, http: httpx.Client
) -> None:
    page = open_page("/console/topics", may_fail=True)
    page.get_by_role("button", name="New topic").click()
    page.get_by_label("Name", exact=True).fill("crews")
    page.get_by_label("Partitions").fill("2")
    page.get_by_label(re.compile("Configuration")).fill("retention.ms=60000")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", name="crews")).to_be_visible()
    assert http.get("/v1/topics/crews").json()["configs"] == {"retention.ms": "60000"}

    http.post("/v1/topics/crews/records", json={"records": [{"value": "one"}, {"value": "two"}]})
    page.get_by_role("button", name="Edit segment.ms").click()
    page.get_by_label("segment.ms", exact=True).fill("nonsense")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("dialog")).to_contain_text("Not a number of type LONG")
    page.get_by_label("segment.ms", exact=True).fill("70000")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert http.get("/v1/topics/crews").json()["configs"]["segment.ms"] == "70000"

    page.get_by_role("button", name="Reset segment.ms to its default").click()
    expect(page.get_by_role("button", name="Reset segment.ms to its default")).to_have_count(0)

    page.get_by_role("button", name="Purge…").click()
    confirm = page.get_by_role("button", name="Purge", exact=True)
    expect(confirm).to_be_disabled()
    page.get_by_label("Type crews to confirm").fill("crew")
    expect(confirm).to_be_disabled()
    page.get_by_label("Type crews to confirm").fill("crews")
    confirm.click()
    expect(page.get_by_text("2 records deleted")).to_be_visible()
    assert http.get("/v1/topics/crews/partitions/0/records").json()["records"] == []

    page.get_by_role("button", name="Delete…").click()
    page.get_by_label("Type crews to confirm").fill("crews")
    page.get_by_role("button", name="Delete", exact=True).click()
    page.wait_for_url("**/console/topics")
    assert http.get("/v1/topics/crews").status_code == 404


@pytest.mark.long
def test_paging_and_searching_topics_update_the_url(open_page: Open, http: httpx.Client) -> None:
    for number in range(60):
        http.put(f"/v1/topics/paged-{number:02}")
    page = open_page("/console/topics")
    page.get_by_label("Search topics by name").fill("PAGED-")
    expect(page.get_by_text("60 topics")).to_be_visible()
    expect(page.locator("#list tbody tr")).to_have_count(50)
    page.get_by_role("button", name="Next").click()
    expect(page.locator("#list tbody tr")).to_have_count(10)

    again = open_page(page.url.removeprefix(str(http.base_url).rstrip("/")))
    expect(again.locator("#list tbody tr")).to_have_count(10)
    expect(again.get_by_text("Page 2 of 2")).to_be_visible()
    page.go_back()
    expect(page.locator("#list tbody tr")).to_have_count(50)


def test_a_group_is_shown_and_its_reset_previewed_before_it_is_done(
    open_page: Open, http: httpx.Client, delays: str
) -> None:
    page = open_page(f"/console/groups?group={delays}")
    expect(page.locator("#partitions tbody tr")).to_have_count(3)
    lag = http.get(f"/v1/groups/{delays}").json()["lag"]
    expect(page.locator("#tiles")).to_contain_text(f"{lag:,}")

    page.get_by_role("button", name="Reset offsets…").click()
    dialog = page.get_by_role("dialog")
    do_it = dialog.get_by_role("button", name="Reset", exact=True)
    expect(do_it).to_be_disabled()
    dialog.get_by_label("To", exact=True).select_option("earliest")
    dialog.get_by_role("button", name="Preview").click()
    expect(dialog.locator("tbody tr").first).to_be_visible()
    assert http.get(f"/v1/groups/{delays}").json()["lag"] == lag
    # The reset differs from the preview now.
    dialog.get_by_label("To", exact=True).select_option("latest")
    expect(do_it).to_be_disabled()
    dialog.get_by_label("To", exact=True).select_option("earliest")
    expect(do_it).to_be_enabled()
    do_it.click()
    expect(dialog).to_have_count(0)
    after = http.get(f"/v1/groups/{delays}").json()
    assert after["lag"] > lag
    assert {part["committed"] for part in after["partitions"] if part["committed"] is not None} == {0}


def test_a_group_that_changes_its_protocol_shows_epochs_and_managed_members(
    open_page: Open, broker: BrokerProcess, http: httpx.Client
) -> None:
    body = {"topics": ["flights"], "session_timeout_ms": 60_000, "client_id": "a-script"}
    http.post("/v1/groups/mixed/members", json=body).raise_for_status()
    consumer = Consumer(
        {
            "bootstrap.servers": broker.kafka_bootstrap,
            "group.id": "mixed",
            "group.protocol": "consumer",
            "client.id": "a-consumer",
        }
    )
    consumer.subscribe(["flights"])
    page = open_page("/console/groups?group=mixed")
    while not consumer.assignment():
        consumer.poll(0.1)
    page.reload()
    epoch = http.get("/v1/groups/mixed").json()["generation"]
    for client, chips in (("a-consumer", [f"epoch {epoch}"]), ("a-script", ["managed", f"epoch {epoch}"])):
        row = page.get_by_role("table", name="Members").get_by_role("row").filter(has_text=client)
        expect(row.locator(".chip")).to_have_text(chips)
        expect(row).to_contain_text("flights")
    consumer.close()


def test_a_share_group_is_shown_with_its_records_in_flight(open_page: Open, http: httpx.Client) -> None:
    http.put("/v1/topics/parcels", json={"partitions": 1}).raise_for_status()
    records = {"records": [{"value": str(number)} for number in range(5)]}
    http.post("/v1/topics/parcels/records", json=records).raise_for_status()
    http.post(
        "/v1/groups/packers/share/poll", json={"topics": ["parcels"], "max_records": 3, "from": "earliest"}
    ).raise_for_status()
    page = open_page("/console/groups?group=packers")
    expect(page.locator("#partitions thead")).to_contain_text("In flight")
    expect(page.locator('#partitions [data-partition="parcels-0"] td.num')).to_have_text(["0", "5", "5", "3"])
    expect(page.locator("#tiles")).to_contain_text("Epoch")


def test_dead_letters_of_a_share_group_are_redriven(open_page: Open, http: httpx.Client) -> None:
    http.put("/v1/topics/crates", json={"partitions": 1}).raise_for_status()
    enabled = {"configs": {"errors.deadletterqueue.group.enable": True}}
    http.put("/v1/topics/dlq.crates", json=enabled).raise_for_status()
    named = {"configs": {"errors.deadletterqueue.topic.name": "dlq.crates"}}
    http.patch("/v1/groups/stackers/configs", json=named).raise_for_status()
    records = {"records": [{"value": str(number)} for number in range(5)]}
    http.post("/v1/topics/crates/records", json=records).raise_for_status()
    polled = http.post(
        "/v1/groups/stackers/share/poll", json={"topics": ["crates"], "from": "earliest"}
    ).json()
    bad = [
        {name: record[name] for name in ("topic", "partition", "offset")} for record in polled["records"][3:]
    ]
    page = open_page("/console/groups?group=stackers")
    expect(page.locator("#unfinished tbody tr td.num")).to_have_text(["0", "4", "1"])
    rejected = http.post("/v1/groups/stackers/share/reject", json={"lock": polled["lock"], "records": bad})
    rejected.raise_for_status()

    expect(page.locator("#letters").get_by_role("link", name="dlq.crates")).to_be_visible()
    page.get_by_role("button", name="Redrive…").click()
    page.get_by_role("dialog").get_by_role("button", name="Redrive", exact=True).click()
    expect(page.get_by_text("2 records redriven")).to_be_visible()
    again = http.post("/v1/groups/stackers/share/poll", json={"topics": ["crates"]}).json()["records"]
    assert [(record["value"], record["offset"]) for record in again] == [("3", 5), ("4", 6)]


def test_a_group_is_opened_from_the_list_whatever_its_id_is(open_page: Open, broker: BrokerProcess) -> None:
    with Client(broker.binary_url) as client:
        for group in ("delays/members/m 1%2F?#", ".."):
            polled = client.call(Poll(group=group, topics=["flights"], poll_id="1"))
            assert polled.lease is not None
            client.call(Ack(group=group, lease=polled.lease))
    page = open_page("/console/groups?search=delays/")
    page.get_by_role("link", name="delays/members/m 1%2F?#").click()
    expect(page.locator("#partitions tbody tr")).to_have_count(3)
    page.get_by_role("button", name="Reset offsets…").click()
    page.get_by_role("dialog").get_by_role("button", name="Preview").click()
    expect(page.get_by_role("dialog").locator("tbody tr").first).to_be_visible()

    page = open_page("/console/groups?group=..")
    expect(page.locator("#notice")).to_contain_text("stele groups describe ..")
    expect(page.locator("#group")).to_be_hidden()


def test_storage_shows_clients_segments_and_what_a_check_found(
    open_page: Open, broker: BrokerProcess, http: httpx.Client
) -> None:
    producer = Producer({"bootstrap.servers": broker.kafka_bootstrap, "client.id": "counter-7"})
    http.put("/v1/topics/rolled", json={"configs": {"segment.bytes": 1024}})
    for _ in range(5):
        producer.produce("rolled", b"v" * 900)
        producer.flush()
    page = open_page("/console/storage?topic=rolled&partition=0")
    client = page.locator("#connections tr", has_text="counter-7")
    expect(client).to_contain_text("confluent-kafka-python")
    expect(page.locator("#segments tbody tr")).to_have_count(5)
    expect(page.locator("#segments tbody tr").first).to_contain_text(re.compile(r"in 7 d"))

    page.get_by_role("button", name="Verify").click()
    expect(page.get_by_text("all CRCs and indexes are valid")).to_be_visible()

    first = broker.data_dir / "rolled-0" / f"{0:020}.log"
    raw = bytearray(first.read_bytes())
    raw[-10] ^= 1
    first.write_bytes(raw)
    page.get_by_role("button", name="Verify").click()
    expect(page.get_by_text("2 problems")).to_be_visible()
    expect(page.locator("#segments li").first).to_contain_text("corrupt from byte 0")


def test_the_console_is_steered_with_the_keyboard_alone(open_page: Open) -> None:
    page = open_page("/console/messages?topic=flights")
    page.wait_for_selector("#search:enabled")
    page.locator("body").press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.get_by_label("Topic", exact=True)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("tr.record")).to_have_count(50)

    opened = page.locator("tr.record button.open").first
    opened.focus()
    page.keyboard.press("Enter")
    tab = page.get_by_role("tab", selected=True)
    expect(tab).to_have_text("JSON")
    tab.focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", selected=True)).to_have_text("Text")
    page.keyboard.press("ArrowRight")
    expect(page.locator("tr.detail pre")).to_contain_text("00000000  7b 22")


def test_light_and_dark_can_be_chosen_and_stay(open_page: Open) -> None:
    page = open_page("/", color_scheme="light")
    paper = "getComputedStyle(document.documentElement).backgroundColor"
    light = page.evaluate(paper)
    page.get_by_role("button", name="Dark").click()
    assert page.evaluate(paper) != light
    page.goto(page.url + "console/topics")
    expect(page.get_by_role("button", name="Light")).to_be_visible()
    assert page.evaluate(paper) != light


@pytest.mark.every(3)
@pytest.mark.parametrize(
    ("path", "script", "buttons"),
    [
        ("/console/topics", "topics.js", ["New topic"]),
        (
            "/console/messages",
            "messages.js",
            ["Search", "Live tail", "Copy as curl", "Export NDJSON", "Export CSV"],
        ),
        ("/console/produce", "produce.js", ["Add a header", "Produce"]),
        ("/console/groups?group=delays", "groups.js", ["Reset offsets…"]),
        ("/console/storage", "storage.js", ["Show segments"]),
        ("/", "shell.js", ["Dark"]),
    ],
)
def test_buttons_wait_for_the_script_that_serves_them(
    open_page: Open, delays: str, path: str, script: str, buttons: list[str]
) -> None:
    page = open_page("/console/transactions", color_scheme="light")
    held: list[Route] = []
    page.route(f"**/{script}*", lambda route: held.append(route))
    page.goto(page.url.replace("/console/transactions", path), wait_until="commit")
    wait_until(lambda: bool(held), page)
    # The button of a group is out of sight until its script shows the group.
    named = [page.get_by_role("button", name=name, exact=True, include_hidden=True) for name in buttons]
    for button in named:
        expect(button).to_be_attached()
        assert button.is_hidden() or button.is_disabled()
    held[0].continue_()
    for button in named:
        expect(button).to_be_visible()
        expect(button).to_be_enabled()


def test_every_page_forbids_inline_scripts_and_has_none(http: httpx.Client) -> None:
    for path in {address.partition("?")[0] for address in SCREENS.values()}:
        answer = http.get(path)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert not re.search(r"<script(?![^>]*\ssrc=)|\son\w+=|style=|javascript:", answer.text)
        assert not re.search(r"(?:src|href)=\"(?:https?:)?//", answer.text)


def test_an_asset_has_its_version_in_its_address(http: httpx.Client) -> None:
    asset = re.search(r'href="(/console/static/\w+/console.css)"', http.get("/").text)
    assert asset
    answer = http.get(asset[1])
    assert answer.headers["content-type"].startswith("text/css")
    assert "immutable" in answer.headers["cache-control"]
    for wrong in (
        "/console/static/0/console.css",
        asset[1] + "x",
        asset[1].replace("console.css", "..%2fpages.py"),
    ):
        assert http.get(wrong).status_code == 404


def test_an_unreachable_broker_is_shown(open_page: Open, broker: BrokerProcess) -> None:
    page = open_page("/", may_fail=True)
    expect(page.locator("#state")).to_have_text("ready")
    page.context.set_offline(True)
    expect(page.locator("#notice")).to_have_text("the broker cannot be reached")
    page.context.set_offline(False)
    expect(page.locator("#notice")).to_be_hidden()


def test_the_flights_are_all_there(http: httpx.Client) -> None:
    topics = http.get("/v1/topics", params={"search": "flights", "sizes": "true"}).json()["topics"]
    assert next(topic for topic in topics if topic["name"] == "flights")["records"] == FLIGHTS


@pytest.mark.long
@pytest.mark.parametrize(
    ("path", "shown"), [("/docs", "#swagger-ui .opblock"), ("/redoc", "[data-section-id]")]
)
def test_the_documentation_is_shown_under_its_own_policy(
    open_page: Open, http: httpx.Client, path: str, shown: str
) -> None:
    headers = http.get(path).headers
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    # A violation would be an error of the page; Redoc asks for a logo from elsewhere, which it is not given.
    page = open_page(path, may_fail=path == "/redoc")
    # Drawing the whole document takes a while.
    expect(page.locator(shown).first).to_be_visible()


def test_a_page_of_topics_after_the_last_one_shows_the_last_one(open_page: Open) -> None:
    page = open_page("/console/topics?search=flights&page=7")
    expect(page.get_by_role("link", name="flights", exact=True)).to_be_visible()
    assert page.url.endswith("/console/topics?search=flights&page=1")


def listed(page: Page) -> list[str]:
    return page.locator("#list tbody tr td:first-child a").all_inner_texts()


def test_topics_are_sorted_by_name_records_or_size(open_page: Open, http: httpx.Client) -> None:
    small, heavy = "sorted-a-small", "sorted-b-heavy"
    http.post(f"/v1/topics/{small}/records", json={"records": [{"value": "x"}] * 5}).raise_for_status()
    http.post(f"/v1/topics/{heavy}/records", json={"records": [{"value": "x" * 9000}]}).raise_for_status()
    http.put("/v1/topics/sorted-c-empty").raise_for_status()
    page = open_page("/console/topics?search=sorted-")
    order = page.get_by_label("Order of the topics")
    for label, expected in (
        ("Most records first", [small, heavy, "sorted-c-empty"]),
        ("Largest first", [heavy, small, "sorted-c-empty"]),
        ("By name", [small, heavy, "sorted-c-empty"]),
    ):
        order.select_option(label=label)
        wait_until(lambda expected=expected: listed(page) == expected, page)
    order.select_option(label="Largest first")
    page.wait_for_url("**order=size*")
    page.reload()
    wait_until(lambda: listed(page) == [heavy, small, "sorted-c-empty"], page)


def test_internal_topics_are_hidden_until_they_are_asked_for(open_page: Open, http: httpx.Client) -> None:
    http.put("/v1/topics/__program_state").raise_for_status()
    page = open_page("/console/topics")
    expect(page.get_by_role("link", name="flights", exact=True)).to_be_visible()
    assert "__program_state" not in listed(page)

    page.get_by_label("Internal").check()
    expect(page.get_by_role("link", name="__program_state", exact=True)).to_be_visible()
    page.reload()
    expect(page.get_by_role("link", name="__program_state", exact=True)).to_be_visible()
    page.get_by_label("Internal").uncheck()
    expect(page.get_by_role("link", name="__program_state", exact=True)).to_be_hidden()


def test_the_whole_value_can_be_read_on_a_phone(open_page: Open, http: httpx.Client) -> None:
    value = " ".join(f"word{number}" for number in range(30))
    http.post(
        "/v1/topics/phone/records", json={"records": [{"key": "k" * 60, "value": value}]}
    ).raise_for_status()
    page = open_page(
        "/console/messages?topic=phone&go=1", viewport={"width": 390, "height": 800}, has_touch=True
    )
    cell = page.locator("tr.record td.cut")
    expect(cell).to_contain_text("word29")
    assert page.evaluate(CUT_CELLS) == []
    assert page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0
