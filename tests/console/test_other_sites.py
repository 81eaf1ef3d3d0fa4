"""A page of another site cannot make the browser of a user change something."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
from playwright.sync_api import expect
from stele.testing import BrokerProcess

from .conftest import Open


class _Page(BaseHTTPRequestHandler):
    """A form that goes to the address in the query."""

    def do_GET(self) -> None:
        target = self.path.partition("?")[2]
        body = f'<form method="post" action="{target}"><input name="a" value="b"><button>Win</button></form>'
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base's name)
        pass


@pytest.fixture
def other_site() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://localhost:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.long
def test_a_form_of_another_site_changes_nothing(
    open_page: Open, broker: BrokerProcess, http: httpx.Client, other_site: str
) -> None:
    page = open_page(f"/?{broker.http_url}/v1/flush", base=other_site, may_fail=True)
    page.get_by_role("button", name="Win").click()
    expect(page.locator("body")).to_contain_text("a page of another site tried to change something")
    # Clients other than browsers send no site, and are served.
    assert http.post("/v1/flush").status_code == 200
    for site, status in (("same-origin", 200), ("none", 200), ("same-site", 403), ("cross-site", 403)):
        assert http.post("/v1/flush", headers={"Sec-Fetch-Site": site}).status_code == status
        assert http.get("/v1/topics", headers={"Sec-Fetch-Site": site}).status_code == 200
