"""The screen of transactions: what is open, what it holds back, and its abort."""

from __future__ import annotations

import httpx
from confluent_kafka import Producer
from playwright.sync_api import expect
from stele.testing import BrokerProcess

from .conftest import Open


def test_a_forgotten_transaction_is_found_and_aborted(
    open_page: Open, broker: BrokerProcess, http: httpx.Client
) -> None:
    name = "billing/1"
    producer = Producer({"bootstrap.servers": broker.kafka_bootstrap, "transactional.id": name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("bills", b"forgotten")
    producer.flush(30)

    page = open_page("/console/transactions")
    row = page.locator("#list tbody tr")
    expect(row).to_contain_text("Ongoing")
    expect(row.locator("td").first).to_have_text(name)
    held = page.locator("#held tbody tr")
    expect(held).to_contain_text("bills-0")
    expect(held).to_contain_text(name)

    page.get_by_label("Search transactional ids").fill("nobody")
    expect(page.get_by_text("No open transaction has “nobody” in its id.")).to_be_visible()
    page.get_by_label("Search transactional ids").fill("BILL")
    row.get_by_role("button", name=f"Abort the transaction of {name}").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("its producer is fenced")
    dialog.get_by_role("button", name="Cancel").click()
    assert http.get("/v1/transactions/billing%2F1").json()["state"] == "Ongoing"

    row.get_by_role("button", name=f"Abort the transaction of {name}").click()
    dialog.get_by_role("button", name="Abort", exact=True).click()
    expect(page.get_by_text("Transaction aborted")).to_be_visible()
    expect(row).to_have_count(0)
    expect(page.get_by_text("No partition is held back.")).to_be_visible()
    assert http.get("/v1/transactions/billing%2F1").json()["state"] == "CompleteAbort"
