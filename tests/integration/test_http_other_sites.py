"""What a page of another site can make a reader's browser send, and what no browser sends."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest
from stele.testing import BrokerProcess, run_broker

OWN_PAGE = "{url}"


@pytest.fixture
def http(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=broker.http_url) as client:
        yield client


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param({}, 200, id="a program"),
        pytest.param({"Sec-Fetch-Site": "same-origin", "Origin": OWN_PAGE}, 200, id="the console"),
        pytest.param({"Sec-Fetch-Site": "none"}, 200, id="typed by hand"),
        pytest.param({"Sec-Fetch-Site": "cross-site"}, 403, id="another site"),
        pytest.param({"Sec-Fetch-Site": "same-site"}, 403, id="another host of the same site"),
        pytest.param({"Origin": OWN_PAGE}, 200, id="the console, where the address is not trusted"),
        pytest.param({"Origin": "http://evil.example"}, 403, id="another site, where it is not trusted"),
        pytest.param({"Origin": "null"}, 403, id="a page that hides where it is from"),
        pytest.param(
            {"Origin": "https://stele.example", "X-Forwarded-Host": "stele.example"},
            200,
            id="the console, behind a proxy",
        ),
    ],
)
def test_only_the_own_pages_change_anything(
    broker: BrokerProcess, http: httpx.Client, headers: dict[str, str], status: int
) -> None:
    own = {name: value.format(url=broker.http_url) for name, value in headers.items()}
    answer = http.post("/v1/flush", headers=own)
    assert answer.status_code == status
    if status == 403:
        assert "only the broker's own pages may" in answer.json()["detail"]
    assert http.get("/v1/topics", headers=own).status_code == 200, "reading changes nothing"


@pytest.mark.parametrize(
    "name", ["localhost", "LOCALHOST", "a.localhost", "127.0.0.1", "[::1]", socket.gethostname()]
)
def test_over_loopback_the_broker_answers_to_its_names(
    broker: BrokerProcess, http: httpx.Client, name: str
) -> None:
    port = urlsplit(broker.http_url).port
    for host in (name, f"{name}:{port}"):
        assert http.get("/v1/topics", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.evil.example"]
)
def test_a_site_whose_name_points_to_this_machine_reads_nothing(http: httpx.Client, host: str) -> None:
    own = {"Host": host, "Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}
    for answer in (
        http.get("/v1/topics", headers=own),
        http.post("/v1/flush", headers=own),
        http.get("/", headers=own),
    ):
        assert answer.status_code == 403
        assert "--set http_allowed_hosts=" in answer.json()["detail"]


def test_a_name_can_be_allowed() -> None:
    with (
        run_broker(environment={"STELE_HTTP_ALLOWED_HOSTS": "stele.example, log.example"}) as broker,
        httpx.Client(base_url=broker.http_url) as http,
    ):
        for host, status in (("stele.example", 200), ("log.example:443", 200), ("evil.example", 403)):
            assert http.get("/v1/topics", headers={"Host": host}).status_code == status
