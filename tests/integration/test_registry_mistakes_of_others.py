"""Faults that users have reported of other schema registries, tried here. Each test names the public report."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer
from stele.broker_process import BrokerProcess

from tests.support.waiting import eventually

STRING = {"schema": '"string"'}


@pytest.fixture(scope="module")
def http(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=broker.registry_url) as client:
        yield client


def sent(
    broker: BrokerProcess, method: str, path: str, body: bytes | None = None, **headers: str
) -> tuple[int, Any]:
    """Send a request with these headers and no others."""
    connection = HTTPConnection(broker.host, broker.registry_port)
    connection.putrequest(method, path, skip_accept_encoding=True)
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    if body is not None:
        connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body)
    response = connection.getresponse()
    document = json.loads(response.read())
    connection.close()
    return response.status, document


def test_a_registration_needs_no_content_type(broker: BrokerProcess) -> None:
    """confluentinc/schema-registry 173, Aiven-Open/karapace 1267: 415 without one, 500 with an empty one."""
    body = json.dumps(STRING).encode()
    assert sent(broker, "POST", "/subjects/untyped/versions", body)[0] == 200
    assert sent(broker, "POST", "/subjects/untyped/versions", body, Content_Type="")[0] == 200


def test_a_deletion_without_a_body_needs_no_content_type(broker: BrokerProcess) -> None:
    """redpanda-data/redpanda 19863: 415."""
    assert sent(broker, "PUT", "/config/untyped", b'{"compatibility": "NONE"}')[0] == 200
    assert sent(broker, "DELETE", "/config/untyped") == (200, {"compatibilityLevel": "NONE"})


def test_an_unknown_route_is_refused_in_the_form_of_the_api(broker: BrokerProcess) -> None:
    """Aiven-Open/karapace 1273: a bare string, for which a serializer of JavaScript gave up."""
    path = "/associations/resources/%2A/orders?resourceType=topic"
    assert sent(broker, "GET", path) == (404, {"error_code": 404, "message": "HTTP 404 Not Found"})


def test_a_url_that_ends_with_a_slash_works(broker: BrokerProcess) -> None:
    """confluentinc/schema-registry 388, domnikl/schema-registry-gitops 27: 404 for //subjects and /config/."""
    assert sent(broker, "POST", "//subjects/slashed/versions", json.dumps(STRING).encode())[0] == 200
    assert sent(broker, "GET", "/config/") == (200, {"compatibilityLevel": "BACKWARD"})


@pytest.mark.parametrize(
    "accept",
    [
        "application/vnd.schema_registry.v1+json, application/vnd.schema_registry+json, application/json",
        "text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2",
    ],
)
def test_what_clients_accept_is_served(broker: BrokerProcess, accept: str) -> None:
    """marcosschroh/python-schema-registry-client 72, and the header of Java's HttpURLConnection."""
    assert sent(broker, "GET", "/schemas/types", Accept=accept)[0] == 200


def test_what_refers_to_a_version_that_does_not_exist_is_no_empty_list(http: httpx.Client) -> None:
    """redpanda-data/redpanda 12892."""
    assert http.get("/subjects/absent/versions/50/referencedby").json()["error_code"] == 40401
    http.post("/subjects/referred/versions", json=STRING)
    assert http.get("/subjects/referred/versions/50/referencedby").json()["error_code"] == 40402


def test_a_body_that_is_not_as_described_is_no_internal_error(http: httpx.Client) -> None:
    """confluentinc/schema-registry 782 and 872: 500 for a schema that is no string, a null pointer without one."""
    bodies: tuple[Any, ...] = ({"schema": {"type": "string"}}, {}, {"schema": None}, [])
    for body in bodies:
        answer = http.post("/subjects/wrong/versions", json=body)
        assert (answer.status_code, answer.json()["error_code"]) == (422, 422)
        assert "schema" in answer.json()["message"] or not body


def test_a_schema_of_another_registry_is_found_whatever_its_spaces(
    http: httpx.Client, broker: BrokerProcess
) -> None:
    """Aiven-Open/karapace 89: 40403 for a schema of a topic that another registry had written."""
    http.post("/subjects/first/versions", json=STRING)
    text = '{ "type" : "record", "name" : "Key",\n "fields" : [ { "name" : "did", "type" : "string" } ] }'
    key = b'{"keytype":"SCHEMA","subject":"moved","version":1,"magic":1}'
    value = {"subject": "moved", "version": 1, "id": 1155, "schema": text, "deleted": False}
    producer = Producer({"bootstrap.servers": broker.kafka_bootstrap})
    producer.produce("_schemas", key=key, value=json.dumps(value).encode())
    assert producer.flush(60) == 0
    eventually(lambda: http.get("/subjects/moved/versions").is_success, "the registry knows the schema")
    compact = json.dumps(json.loads(text), separators=(",", ":"))
    for schema in (text, compact):
        assert http.post("/subjects/moved", json={"schema": schema}).json()["id"] == 1155
        assert http.post("/subjects/moved/versions", json={"schema": schema}).json() == {"id": 1155}


def test_a_deleted_schema_that_is_registered_again_has_a_version(http: httpx.Client) -> None:
    """redpanda-data/redpanda 18561: the registration was accepted, and the subject stayed empty."""
    http.put("/config/again", json={"compatibility": "NONE"})
    first = http.post("/subjects/again/versions", json={"schema": '"int"'}).json()
    http.post("/subjects/again/versions", json=STRING)
    for version in (1, 2):
        assert http.delete(f"/subjects/again/versions/{version}").json() == version
    assert http.post("/subjects/again/versions", json={"schema": '"int"'}).json() == first
    assert http.get("/subjects/again/versions").json() == [3]


def test_a_primitive_is_shown_as_avro_shows_it(http: httpx.Client) -> None:
    """redpanda-data/redpanda 4970: the schema was shown as it was sent, which made two of one."""
    first = http.post("/subjects/primitive/versions", json={"schema": '{"type": "string"}'}).json()
    assert http.get(f"/schemas/ids/{first['id']}").json() == STRING
    assert http.post("/subjects/primitive/versions", json=STRING).json() == first


def test_the_type_of_a_schema_is_part_of_it(http: httpx.Client) -> None:
    """redpanda-data/redpanda 5576: without it, clients take a schema by its id for Avro."""
    body = {"schema": '{"type": "object"}', "schemaType": "JSON"}
    schema_id = http.post("/subjects/typed/versions", json=body).json()["id"]
    assert http.get(f"/schemas/ids/{schema_id}").json()["schemaType"] == "JSON"


def test_a_protobuf_schema_is_registered_once_and_found(http: httpx.Client) -> None:
    """Aiven-Open/karapace 442, redpanda-data/redpanda 5771: 40403; well-known types had to be registered."""
    text = (
        'syntax = "proto3";\nimport "google/protobuf/timestamp.proto";\n\n'
        "message Record {\n  int32 id = 1;\n  google.protobuf.Timestamp at = 2;\n}\n"
    )
    body = {"schema": text, "schemaType": "PROTOBUF"}
    first = http.post("/subjects/protobuf/versions", json=body)
    assert first.status_code == 200, first.text
    assert http.post("/subjects/protobuf/versions", json=body).json() == first.json()
    assert http.post("/subjects/protobuf", json=body).json()["version"] == 1


def test_the_latest_version_has_a_number_too(http: httpx.Client) -> None:
    """Apicurio/apicurio-registry 2851: -1, which Confluent's Maven plugin sends, was no version."""
    http.post("/subjects/latest/versions", json=STRING)
    assert http.get("/subjects/latest/versions/-1").json()["version"] == 1


def test_a_refusal_says_what_is_incompatible(http: httpx.Client) -> None:
    """confluentinc/schema-registry 2166: which earlier schema, and nothing else."""
    http.post("/subjects/strict/versions", json=STRING)
    message = http.post("/subjects/strict/versions", json={"schema": '"int"'}).json()["message"]
    assert "version 1" in message
    assert "string" in message
    assert "int" in message
