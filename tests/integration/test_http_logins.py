"""Logins over HTTP: headers, the console's cookie, and what is served without a login."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from stele.broker_process import BrokerProcess, run_broker

from tests.integration.test_kafka_logins import PASSWORD, USER, add_user
from tests.integration.test_kafka_logins import log_in as log_in_over_kafka
from tests.support.kafka_peer import KafkaPeer
from tests.support.kafka_users import delete_user, set_password

OPEN = {"/healthz", "/readyz", "/console/login", "/console/static/{version}/{name}"}
OWN = {"Sec-Fetch-Site": "same-origin"}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("http-logins") / "data"
    path.mkdir()
    return path


@pytest.fixture(scope="module")
def api_key(data_dir: Path) -> str:
    return add_user(data_dir)


@pytest.fixture(scope="module")
def broker(data_dir: Path, api_key: str) -> Iterator[BrokerProcess]:
    environment = {
        "STELE_HTTP_AUTHENTICATION": "required",
        "STELE_KAFKA_AUTHENTICATION": "optional",
        "STELE_LOGIN_FAILURES_FREE": "10000",
        # These tests are about logins alone.
        "STELE_AUTHORIZATION": "none",
    }
    with run_broker(data_dir=data_dir, environment=environment) as broker:
        yield broker


@pytest.fixture
def http(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=broker.http_url) as client:
        yield client


def documented_paths(http: httpx.Client) -> dict[str, dict[str, object]]:
    return http.get("/openapi.json", auth=(USER, PASSWORD)).json()["paths"]


def test_every_route_but_the_health_checks_needs_a_login(http: httpx.Client) -> None:
    seen = 0
    for path, operations in documented_paths(http).items():
        url = re.sub(r"\{[^}]*\}", "0", path)
        for method in operations:
            answer = http.request(method, url)
            assert (answer.status_code != 401) is (path in OPEN), f"{method} {path}: {answer.status_code}"
            seen += 1
    assert seen > 30
    for path in ("/metrics", "/docs", "/redoc", "/openapi.json", "/", "/console/topics", "/no/such/path"):
        answer = http.get(path)
        assert answer.status_code == 401, path
        assert answer.headers["www-authenticate"].startswith("Basic ")
        assert answer.json()["type"] == "/problems/authentication-required"
        assert answer.json()["kafka_code"] == 58


def test_metrics_need_no_login_if_a_setting_says_so() -> None:
    environment = {"STELE_HTTP_AUTHENTICATION": "required", "STELE_METRICS_ANONYMOUS_ENABLE": "true"}
    with run_broker(environment=environment) as broker, httpx.Client(base_url=broker.http_url) as http:
        assert http.get("/metrics").status_code == 200
        assert http.get("/v1/topics").status_code == 401


def test_a_user_and_an_api_key_log_in(http: httpx.Client, api_key: str) -> None:
    assert http.get("/v1/topics", auth=(USER, PASSWORD)).status_code == 200
    assert http.get("/v1/topics", headers={"Authorization": f"bearer {api_key}"}).status_code == 200
    assert http.get("/v1/topics", auth=(api_key.split("_")[1], api_key)).status_code == 200


@pytest.mark.parametrize(
    "values",
    [
        ["Basic"],
        ["Basic ???"],
        ["Basic YWxpY2U="],
        ["Basic YWxpY2U6d3Jvbmc="],
        ["Bearer x"],
        ["Digest username=alice"],
        [""],
        ["Bearer {key}", "Bearer {key}"],
        ["Bearer {key}x"],
    ],
)
def test_a_wrong_header_is_never_anonymous(http: httpx.Client, api_key: str, values: list[str]) -> None:
    headers = [("Authorization", value.format(key=api_key)) for value in values]
    for path in ("/v1/topics", "/healthz"):
        answer = http.get(path, headers=headers)
        assert answer.status_code == 401
        assert answer.json()["type"] == "/problems/authentication-failed"
        assert "Basic" in answer.headers["www-authenticate"]


def log_in(
    http: httpx.Client, next_path: str = "/console/topics", password: str = PASSWORD
) -> httpx.Response:
    form = {"user": USER, "password": password, "next": next_path}
    return http.post("/console/login", data=form, headers=OWN)


def status_with(http: httpx.Client, cookies: dict[str, str]) -> int:
    with httpx.Client(base_url=http.base_url, cookies=cookies) as client:
        return client.get("/v1/topics").status_code


def test_the_console_logs_in_with_a_cookie_and_out_again(http: httpx.Client) -> None:
    page = {"Accept": "text/html"}
    answer = http.get("/console/topics", headers=page)
    assert (answer.status_code, answer.headers["location"]) == (303, "/console/login?next=/console/topics")
    assert '<form method="post" action="/console/login">' in http.get(answer.headers["location"]).text
    answer = log_in(http)
    assert (answer.status_code, answer.headers["location"]) == (303, "/console/topics")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert "Log out" in http.get("/console/topics", headers=page).text
    assert http.get("/v1/topics").status_code == 200
    kept = dict(http.cookies)
    assert http.post("/console/logout", headers=OWN).status_code == 303
    assert status_with(http, kept) == 401, "the session is gone in the broker, too"


def test_a_login_makes_a_new_session(http: httpx.Client) -> None:
    log_in(http)
    first = dict(http.cookies)
    log_in(http)
    assert dict(http.cookies) != first
    assert status_with(http, first) == 401


@pytest.mark.parametrize(
    ("headers", "status"),
    [(OWN, 200), ({}, 403), ({"Sec-Fetch-Site": "none"}, 403), ({"Sec-Fetch-Site": "cross-site"}, 403)],
)
def test_a_cookie_changes_something_only_from_the_consoles_own_pages(
    http: httpx.Client, headers: dict[str, str], status: int
) -> None:
    log_in(http)
    assert http.post("/v1/flush", headers=headers).status_code == status


@pytest.mark.parametrize("target", ["https://evil.example/", "//evil.example/", "/\\evil.example", ""])
def test_a_login_leads_to_pages_of_the_broker_alone(http: httpx.Client, target: str) -> None:
    assert log_in(http, target).headers["location"] == "/"


def test_a_wrong_password_leads_back_to_the_form(http: httpx.Client) -> None:
    answer = log_in(http, password="wrong password")
    assert answer.headers["location"] == "/console/login?failed&next=/console/topics"
    assert "set-cookie" not in answer.headers
    assert "The login failed" in http.get(answer.headers["location"]).text


def test_sessions_and_streams_end_with_the_user(broker: BrokerProcess, http: httpx.Client) -> None:
    with KafkaPeer(broker) as peer:
        log_in_over_kafka(peer)
        set_password(peer, "bob", "the password of bob")
    http.put("/v1/topics/followed", json={}, auth=(USER, PASSWORD))
    http.post("/v1/topics/followed/records", json={"value": 1}, auth=(USER, PASSWORD))
    begun, ended = threading.Event(), threading.Event()

    def follow() -> None:
        url = f"{broker.http_url}/v1/topics/followed/records"
        with (
            httpx.Client(timeout=60) as client,
            client.stream(
                "GET",
                url,
                auth=("bob", "the password of bob"),
                headers={"Accept": "text/event-stream"},
            ) as response,
        ):
            assert response.status_code == 200, response.read()
            begun.set()
            try:
                for _ in response.iter_bytes():
                    pass
            except httpx.RemoteProtocolError:
                pass
            ended.set()

    thread = threading.Thread(target=follow)
    thread.start()
    assert begun.wait(60)
    with KafkaPeer(broker) as peer:
        log_in_over_kafka(peer)
        delete_user(peer, "bob")
    assert ended.wait(60)
    thread.join()
    assert http.get("/v1/topics", auth=("bob", "the password of bob")).status_code == 401
