"""How the listener of the schema registry speaks HTTP: media types, bodies, paths, and what broke in other registries."""

from __future__ import annotations

import gzip
import json
import socket
from collections.abc import Iterator

import httpx
import pytest
from stele.broker_process import BrokerProcess, run_broker

from app.api.registry.errors import MEDIA_TYPES

DEFAULT, SHORTER, JSON = MEDIA_TYPES
SCHEMA = {"schema": '"string"'}


ENVIRONMENT = {"STELE_REQUEST_BODY_BYTES_MAX": "65536"}


@pytest.fixture(scope="module")
def http(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=broker.registry_url) as client:
        # Only the headers of the test.
        client.headers.clear()
        yield client


# ── media types ──


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (None, DEFAULT),
        ("", DEFAULT),
        ("*", DEFAULT),
        ("*/*", DEFAULT),
        ("*/anything", DEFAULT),
        ("application/*", DEFAULT),
        (DEFAULT, DEFAULT),
        (SHORTER, SHORTER),
        (JSON, JSON),
        (JSON.upper(), JSON),
        (f"{DEFAULT}, {SHORTER}, {JSON}", DEFAULT),
        (f"{DEFAULT};q=0.1, {SHORTER}; q=0.9", SHORTER),
        ("application/vnd.schemaregistry.v2+json; q=0.9, application/json; q=0.1", JSON),
        # HttpURLConnection of Java; and a client that misspelled the first two.
        ("text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2", DEFAULT),
        (
            "application/vnd.schema_registry.v1+json, application/vnd.schema_registry+json, application/json",
            JSON,
        ),
        (f"{DEFAULT};q=0, */*", SHORTER),
        ("text/html", None),
        ("text/*", None),
        ("application/octet-stream", None),
        ("application/vnd.schemaregistry.v2+json", None),
        (f"{JSON};q=0", None),
    ],
)
def test_the_answer_has_the_media_type_that_the_client_prefers(
    http: httpx.Client, accept: str | None, expected: str | None
) -> None:
    for path, status in (("/subjects", 200), ("/subjects/absent/versions", 404)):
        response = http.get(path, headers={} if accept is None else {"accept": accept})
        if expected is None:
            assert response.status_code == 406
            assert response.json() == {"error_code": 406, "message": "HTTP 406 Not Acceptable"}
            assert response.headers["content-type"] == DEFAULT
        else:
            assert response.status_code == status
            assert response.headers["content-type"] == expected


@pytest.mark.parametrize(
    "media_type",
    [
        None,
        "",
        *MEDIA_TYPES,
        f"{DEFAULT}; charset=utf-8",
        f'{JSON};charset="UTF-8"',
        "application/octet-stream",
    ],
)
def test_a_body_may_have_any_media_type_of_the_api_or_none(
    http: httpx.Client, media_type: str | None
) -> None:
    headers = {} if media_type is None else {"content-type": media_type}
    response = http.put("/config/typed", content=b'{"compatibility": "FULL"}', headers=headers)
    assert (response.status_code, response.json()) == (200, {"compatibility": "FULL"})


@pytest.mark.parametrize(
    "media_type", ["text/html", "text/json", "application/xml", f"{JSON}; charset=ebcdic"]
)
def test_a_body_of_another_type_is_refused(http: httpx.Client, media_type: str) -> None:
    response = http.put("/config/typed", content=b"{}", headers={"content-type": media_type})
    assert response.status_code == 415
    assert response.json() == {"error_code": 415, "message": "HTTP 415 Unsupported Media Type"}


@pytest.mark.parametrize("charset", ["utf-8", "utf-16", "utf-16le", "UTF-16BE", "utf-32", "iso-8859-1"])
def test_a_body_may_have_another_charset(http: httpx.Client, charset: str) -> None:
    schema = {"schema": json.dumps({"type": "enum", "name": "Größe", "symbols": ["A"], "doc": "groß"})}
    response = http.post(
        "/compatibility/subjects/absent/versions?verbose=true",
        content=json.dumps(schema, ensure_ascii=False).encode(charset),
        headers={"content-type": f"{DEFAULT}; charset={charset}"},
    )
    # It is no name of Avro; that the schema could be read is enough here.
    assert response.status_code == 200, response.text


@pytest.mark.parametrize("body", [b"", b"{", b'{"schema": "a', b"\xff\xfe", b'{"a":' * 10_000])
def test_what_is_not_json_is_refused(http: httpx.Client, body: bytes) -> None:
    response = http.post("/subjects/broken/versions", content=body)
    assert (response.status_code, response.json()["error_code"]) == (400, 400)


def test_a_body_in_the_wrong_charset_is_refused(http: httpx.Client) -> None:
    headers = {"content-type": f"{DEFAULT}; charset=utf-16"}
    response = http.post("/subjects/broken/versions", content=b'{"a": 1', headers=headers)
    assert (response.status_code, response.json()["error_code"]) == (400, 400)


def test_a_body_that_is_too_large_is_refused(http: httpx.Client) -> None:
    response = http.post("/subjects/large/versions", json={"schema": " " * 70_000})
    assert (response.status_code, response.json()["error_code"]) == (413, 413)


def test_a_compressed_body_is_read(http: httpx.Client) -> None:
    response = http.post(
        "/subjects/compressed/versions",
        content=gzip.compress(json.dumps(SCHEMA).encode()),
        headers={"content-encoding": "gzip"},
    )
    assert response.status_code == 200
    response = http.post("/subjects/compressed/versions", content=b"x", headers={"content-encoding": "br"})
    assert response.json() == {"error_code": 415, "message": "HTTP 415 Unsupported Media Type"}
    assert response.headers["accept-encoding"] == "gzip, deflate"


# ── paths and queries ──


@pytest.mark.parametrize(
    "subject",
    [
        "a/b",
        "path/to/my/order.proto",
        'quote"',
        "{brace}",
        "colon:",
        "it's",
        "plus+plus",
        "per%cent",
        "ü ß",
        "a%2Fb",
    ],
)
def test_a_subject_may_have_any_characters(http: httpx.Client, subject: str) -> None:
    from urllib.parse import quote

    path = f"/subjects/{quote(subject, safe='')}"
    assert http.post(f"{path}/versions", json=SCHEMA).status_code == 200
    assert http.get(f"{path}/versions/1").json()["subject"] == subject
    assert subject in http.get("/subjects").json()
    assert http.delete(path).json() == [1]


def test_a_slash_too_many_is_ignored(http: httpx.Client) -> None:
    with httpx.Client(base_url=str(http.base_url).rstrip("/")) as client:
        for path in ("//subjects", "/subjects/", "//subjects/"):
            response = client.send(client.build_request("GET", f"{http.base_url}".rstrip("/") + path))
            assert (response.status_code, response.history) == (200, [])
        name = "ends%2F"
        assert client.post(f"/subjects/{name}/versions", json=SCHEMA).status_code == 200
        assert client.get(f"/subjects/{name}/versions/").json() == [1]


def test_what_a_query_has_besides_is_ignored(http: httpx.Client) -> None:
    assert http.post("/subjects/queried/versions", json=SCHEMA).status_code == 200
    for query in (
        "deleted_only=True&deleted=False",
        "format=&deleted=",
        "x",
        "normalize=FALSE&normalize=False",
        "&&",
    ):
        assert http.get(f"/subjects/queried/versions?{query}").json() == [1], query
    ignored = {**SCHEMA, "more": [1], "schemaTags": None, "references": None, "metadata": None, "id": None}
    assert http.post("/subjects/queried/versions?normalize=False&tags=a", json=ignored).status_code == 200


def test_head_is_answered_as_get_without_a_body(http: httpx.Client) -> None:
    response = http.head("/subjects")
    assert (response.status_code, response.content) == (200, b"")
    assert int(response.headers["content-length"]) == len(http.get("/subjects").content)


# ── below the application ──


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET /subjects HTTP/1.1\r\n\r\n", 400),
        (b"GET /subjects HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
        (b"GET /subjects HTTP/2.1\r\nHost: a\r\n\r\n", 505),
        (b"BREW / HTTP/1.1\r\nHost: a\r\n\r\n", 501),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 70_000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403),
    ],
)
def test_what_never_reaches_a_route_is_refused_in_the_same_form(
    broker: BrokerProcess, sent: bytes, status: int
) -> None:
    with socket.create_connection((broker.host, broker.registry_port)) as peer:
        peer.sendall(sent)
        peer.shutdown(socket.SHUT_WR)
        answer = b""
        while data := peer.recv(65536):
            answer += data
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert f"content-type: {DEFAULT}".encode() in head
    assert json.loads(body)["error_code"] == (40301 if status == 403 else status)


def test_pages_of_other_sites_change_nothing(http: httpx.Client) -> None:
    response = http.put("/config", json={"compatibility": "NONE"}, headers={"sec-fetch-site": "cross-site"})
    assert (response.status_code, response.json()["error_code"]) == (403, 40301)


def test_requests_are_counted_and_named(broker: BrokerProcess, http: httpx.Client) -> None:
    response = http.get("/schemas/types", headers={"x-request-id": "mine"})
    assert response.headers["x-request-id"] == "mine"
    metrics = httpx.get(f"{broker.http_url}/metrics").text
    assert 'stele_http_requests_total{method="GET",route="/schemas/types",status="2xx"}' in metrics
    assert 'stele_listener_connections{protocol="registry"} ' in metrics
    listed = httpx.get(f"{broker.http_url}/v1/connections").json()["connections"]
    assert "registry" in {connection["protocol"] for connection in listed}
    cluster = httpx.get(f"{broker.http_url}/v1/cluster").json()
    assert cluster["brokers"][0]["registry_port"] == broker.registry_port


def test_the_document_describes_the_routes(http: httpx.Client) -> None:
    document = http.get("/openapi.json").json()
    operation = document["paths"]["/subjects/{subject}/versions"]["post"]
    assert operation["operationId"] == "register_schema"
    reference = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
    body = document["components"]["schemas"][reference.rpartition("/")[2]]
    assert "schemaType" in body["properties"]
    error = document["components"]["responses"]["Error"]["content"][DEFAULT]["schema"]["$ref"]
    assert set(document["components"]["schemas"][error.rpartition("/")[2]]["properties"]) == {
        "error_code",
        "message",
    }
    assert "session" not in document["components"]["securitySchemes"]


# ── the listener ──


def test_the_listener_can_be_turned_off() -> None:
    with run_broker(environment={"STELE_REGISTRY_ENABLE": "false"}) as broker:
        assert "registry_port" not in httpx.get(f"{broker.http_url}/v1/cluster").json()["brokers"][0]
        with pytest.raises(httpx.ConnectError):
            httpx.get(broker.registry_url)
        assert httpx.get(f"{broker.http_url}/v1/registry/subjects").status_code == 404
        assert "STELE_REGISTRY_ENABLE" in httpx.get(f"{broker.http_url}/console/schemas").text


def test_the_http_listener_serves_the_same_routes(http: httpx.Client, broker: BrokerProcess) -> None:
    with httpx.Client(base_url=f"{broker.http_url}/v1/registry") as other:
        made = other.post("/subjects/a%2Fb/versions", json=SCHEMA)
        assert made.json() == {"id": http.post("/subjects/a%2Fb", json=SCHEMA).json()["id"]}
        found = other.get("/subjects/a%2Fb/versions/latest", params={"unknown": "1"})
        assert found.headers["content-type"] == DEFAULT
        assert found.json() == http.get("/subjects/a%2Fb/versions/latest").json()
        absent = other.get("/subjects/a/versions")
        assert absent.headers["content-type"] == "application/problem+json"
        assert (absent.status_code, absent.json()["error_code"]) == (404, 40401)
        assert other.get("/subjects/a/b/versions").status_code == 404
        refused = other.put("/subjects/a%2Fb")
        assert (refused.status_code, refused.headers["allow"]) == (405, "DELETE, POST")


def test_too_many_connections_are_refused_in_the_same_form() -> None:
    with run_broker(environment={"STELE_CONNECTIONS_MAX": "1"}) as broker:
        with (
            httpx.Client(base_url=broker.registry_url) as first,
            httpx.Client(base_url=broker.registry_url) as second,
        ):
            assert first.get("/").status_code == 200
            response = second.get("/")
            assert (response.status_code, response.json()["error_code"]) == (503, 503)
            assert response.headers["content-type"] == DEFAULT
        # Each listener has its own.
        assert httpx.get(f"{broker.http_url}/healthz").status_code == 200
