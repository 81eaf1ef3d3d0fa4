"""The console and the metrics cope with 5,000 topics."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import expect
from stele.testing import BrokerProcess, run_broker

from .conftest import ENVIRONMENT, Open

TOPICS = 5000

pytestmark = pytest.mark.long


async def make_topics(url: str) -> None:
    names = iter(range(TOPICS))

    async def work(http: httpx.AsyncClient) -> None:
        for number in names:
            answer = await http.put(f"/v1/topics/sensor-{number:04}")
            assert answer.status_code == 201, answer.text

    async with httpx.AsyncClient(base_url=url, timeout=60) as http:
        await asyncio.gather(*(work(http) for _ in range(8)))


@pytest.fixture(scope="module")
def crowded() -> Iterator[BrokerProcess]:
    with run_broker(environment=ENVIRONMENT) as running:
        asyncio.run(make_topics(running.http_url))
        yield running


def test_a_page_holds_fifty_of_five_thousand_topics_and_asks_once(
    crowded: BrokerProcess, open_page: Open
) -> None:
    urls: list[str] = []
    page = open_page("/", base=crowded.http_url)
    expect(page.locator("#facts")).to_contain_text("5,000 with 5,000 partitions")
    page.on("request", lambda request: urls.append(request.url) if "/v1/" in request.url else None)
    page.get_by_role("link", name="Topics", exact=True).click()
    expect(page.get_by_text("5,000 topics")).to_be_visible()
    expect(page.locator("#list tbody tr")).to_have_count(50)
    expect(page.get_by_text("Page 1 of 100")).to_be_visible()
    assert [url.partition("/v1/")[2] for url in urls if "/v1/topics" in url] == [
        "topics?page=1&limit=50&sizes=true&internal=false"
    ]

    page.get_by_label("Search topics by name").fill("4999")
    expect(page.get_by_text("1 topics")).to_be_visible()
    page.get_by_role("link", name="sensor-4999", exact=True).click()
    expect(page.get_by_role("heading", name="sensor-4999")).to_be_visible()


def test_metrics_name_some_of_them_and_add_up_the_others(crowded: BrokerProcess) -> None:
    with httpx.Client(base_url=crowded.http_url, timeout=60) as http:
        for number in (0, 1, 4000, 4999):
            http.post(f"/v1/topics/sensor-{number:04}/records", json={"records": [{"value": "x"}]})
        while True:
            text = http.get("/metrics").text
            samples = dict(
                line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("stele_topic_records{")
            )
            if sum(map(float, samples.values())) == 4:
                break
    assert len(samples) == 201
    assert float(samples['stele_topic_records{topic="(others)"}']) == 2
    assert len(text) < 200_000
