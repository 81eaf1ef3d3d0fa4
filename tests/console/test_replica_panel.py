"""The console shows what would be lost now, how far back a restore can go, and what is wrong with the replica."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import httpx
from playwright.sync_api import expect
from stele.testing import run_broker

from tests.support.waiting import eventually

from .accessibility import check_accessibility
from .conftest import Open

PAGE = "/console/storage"


def produce(url: str) -> None:
    httpx.post(
        f"{url}/v1/topics/orders/records", json={"records": [{"value": "x"}]}, timeout=60
    ).raise_for_status()


def state(url: str) -> str:
    answered: dict[str, str] = httpx.get(f"{url}/v1/replica", timeout=60).json()
    return answered["state"]


def test_a_broker_without_a_replica_says_which_setting_makes_one(open_page: Open) -> None:
    panel = open_page(PAGE).get_by_label("Replica in a bucket")
    expect(panel).to_contain_text("STELE_REPLICATE_TO")
    expect(panel.locator("dl")).to_have_count(0)


def test_the_panel_follows_a_replica_whose_bucket_goes_away_and_that_is_overtaken(
    open_page: Open, tmp_path: Path
) -> None:
    bucket, away, data = tmp_path / "bucket", tmp_path / "away", tmp_path / "data"
    environment = {"STELE_REPLICATE_TO": f"file://{bucket}", "STELE_REPLICA_INTERVAL_MS": "100"}
    with run_broker(data, environment=environment) as broker:
        produce(broker.http_url)
        page = open_page(PAGE, base=broker.http_url)
        panel = page.get_by_label("Replica in a bucket")
        expect(panel.locator(".chip")).to_have_text("replicating")
        facts = panel.locator("dl")
        expect(facts).to_contain_text(re.compile(r"the changes of the last [\d.]+ m?s, at most"))
        expect(facts).to_contain_text(
            re.compile(r"Restores go back to\d{4}-\d\d-\d\d \d\d:\d\d:\d\d, [\d.]+ m?s ago")
        )
        expect(facts).to_contain_text(f"file://{bucket}")
        expect(facts).to_contain_text("0 failed requests")
        check_accessibility(page)
        bucket.rename(away)
        # A file in its place refuses what a directory takes.
        bucket.touch()
        produce(broker.http_url)
        expect(panel.locator(".chip.warn")).to_have_text("failing")
        expect(panel.locator(".notice.warn")).to_contain_text("writing")
        bucket.unlink()
        away.rename(bucket)
        expect(panel.locator(".chip")).to_have_text("replicating")
        expect(panel.locator(".notice")).to_have_count(0)
        shutil.copytree(data, tmp_path / "copy")
        with run_broker(tmp_path / "copy", environment=environment) as other:
            # Otherwise it could be the one that loses.
            eventually(lambda: state(other.http_url) == "replicating", "the other broker has written a cut")
            produce(broker.http_url)
            expect(panel.locator(".chip.bad")).to_have_text("overtaken")
            expect(panel.locator(".notice")).to_contain_text("another broker has written cut")
            expect(panel).to_contain_text("stop one of them")
            check_accessibility(page)
        # An open page keeps polling, and would report that the broker is gone.
        page.close()
