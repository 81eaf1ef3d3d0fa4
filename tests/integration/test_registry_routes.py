"""Each route of the schema registry, with what it answers and each way in which it refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import httpx
import pytest
from stele.broker_process import BrokerProcess

INT, LONG, STRING = '"int"', '"long"', '"string"'
MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"
UNKNOWN = "GET /schemas/ids/2147483647"


@pytest.fixture(scope="module")
def http(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=broker.registry_url) as client:
        yield client


@pytest.fixture
def subject(request: pytest.FixtureRequest) -> str:
    """A name of this test's own."""
    return request.node.name


def call(http: httpx.Client, target: str, body: object = None) -> httpx.Response:
    method, _, path = target.partition(" ")
    content = None if body is None else json.dumps(body)
    return http.request(method, path, content=content, headers={"content-type": MEDIA_TYPE})


def answer(http: httpx.Client, target: str, body: object = None) -> Any:
    """Return what a route answers that succeeds."""
    response = call(http, target, body)
    assert response.status_code == 200, (target, response.status_code, response.text)
    assert response.headers["content-type"] == MEDIA_TYPE
    return response.json()


def register(http: httpx.Client, subject: str, schema: str, **members: object) -> int:
    return answer(http, f"POST /subjects/{subject}/versions", {"schema": schema, **members})["id"]


def refusal(http: httpx.Client, target: str, body: object = None) -> tuple[int, int, str]:
    """Return the status, the code and the message of a refusal."""
    response = call(http, target, body)
    assert response.headers["content-type"] == MEDIA_TYPE
    document = response.json()
    assert list(document) == ["error_code", "message"], document
    return response.status_code, document["error_code"], document["message"]


def without_compatibility(http: httpx.Client, subject: str) -> None:
    answer(http, f"PUT /config/{subject}", {"compatibility": "NONE"})


# ── what is answered ──


def test_a_schema_is_registered_read_and_looked_up(http: httpx.Client, subject: str) -> None:
    schema_id = register(http, subject, STRING)
    assert register(http, subject, STRING) == schema_id
    version = {"subject": subject, "version": 1, "id": schema_id, "schema": STRING}
    assert answer(http, f"GET /subjects/{subject}/versions") == [1]
    for name in ("1", "latest", "LATEST", "-1"):
        assert answer(http, f"GET /subjects/{subject}/versions/{name}") == version
    assert answer(http, f"GET /subjects/{subject}/versions/1/schema") == "string"
    assert answer(http, f"POST /subjects/{subject}", {"schema": STRING}) == version
    assert answer(http, f"GET /schemas/ids/{schema_id}") == {"schema": STRING}
    assert answer(http, f"GET /schemas/ids/{schema_id}/schema") == "string"
    assert subject in answer(http, f"GET /schemas/ids/{schema_id}/subjects")
    assert {"subject": subject, "version": 1} in answer(http, f"GET /schemas/ids/{schema_id}/versions")
    assert subject in answer(http, "GET /subjects")
    assert version in answer(http, f"GET /schemas?subjectPrefix={subject}")


def test_clients_that_take_more_get_the_guid(http: httpx.Client, subject: str) -> None:
    for name, value in (
        ("confluent-accept-unknown-properties", "true"),
        ("confluent-client-version", "python/2.15.0"),
    ):
        registered = http.post(
            f"/subjects/{subject}/versions", json={"schema": STRING}, headers={name: value}
        ).json()
        assert registered.keys() == {"id", "version", "guid"}
        guid, schema_id = registered["guid"], registered["id"]
        version = http.get(f"/subjects/{subject}/versions/1", headers={name: value}).json()
        assert version["guid"] == guid
        assert version["ts"] > 0
        by_id = http.get(f"/schemas/ids/{schema_id}", headers={name: value}).json()
        assert (by_id["guid"], by_id["schema"]) == (guid, STRING)
        assert answer(http, f"GET /schemas/guids/{guid}") == {"schema": STRING}
        assert answer(http, f"GET /schemas/guids/{guid}/ids") == [{"context": ".", "id": schema_id}]
    assert answer(http, f"POST /subjects/{subject}/versions", {"schema": STRING}) == {"id": schema_id}


def test_references_metadata_and_rules_are_stored_and_returned(http: httpx.Client, subject: str) -> None:
    base = json.dumps({"type": "enum", "name": "Colour", "symbols": ["RED"]})
    register(http, f"{subject}-base", base)
    reference = {"name": "Colour", "subject": f"{subject}-base", "version": 1}
    rules = {
        "domainRules": [{"name": "r", "kind": "CONDITION", "mode": "WRITE", "type": "CEL", "expr": "true"}]
    }
    record = json.dumps({"type": "record", "name": "Car", "fields": [{"name": "colour", "type": "Colour"}]})
    schema_id = register(
        http,
        subject,
        record,
        references=[reference],
        metadata={"properties": {"owner": "ada"}},
        ruleSet=rules,
    )
    found = answer(http, f"GET /subjects/{subject}/versions/latest")
    assert found["references"] == [reference]
    assert found["metadata"]["properties"] == {"owner": "ada"}
    assert found["ruleSet"]["domainRules"][0]["expr"] == "true"
    assert answer(http, f"GET /subjects/{subject}-base/versions/1/referencedby") == [schema_id]
    assert answer(http, f"GET /subjects/{subject}/metadata?key=owner&value=ada") == found
    assert refusal(http, f"GET /subjects/{subject}/metadata?key=owner&value=bob")[:2] == (404, 40403)
    assert refusal(http, f"GET /subjects/{subject}/metadata?key=owner")[:2] == (400, 400)
    assert refusal(http, f"DELETE /subjects/{subject}-base/versions/1")[:2] == (422, 42206)
    assert refusal(http, f"DELETE /subjects/{subject}-base")[:2] == (422, 42206)


def test_a_version_and_a_subject_are_deleted_in_two_steps(http: httpx.Client, subject: str) -> None:
    without_compatibility(http, subject)
    ids = [register(http, subject, schema) for schema in (INT, STRING, LONG)]
    first = f"/subjects/{subject}/versions/1"
    assert refusal(http, f"DELETE {first}?permanent=true")[:2] == (404, 40407)
    assert answer(http, f"DELETE {first}") == 1
    assert refusal(http, f"DELETE {first}")[:2] == (404, 40406)
    assert refusal(http, f"GET {first}")[:2] == (404, 40402)
    assert answer(http, f"GET {first}?deleted=true")["id"] == ids[0]
    assert answer(http, f"GET /schemas/ids/{ids[0]}") == {"schema": INT}
    assert answer(http, f"GET /subjects/{subject}/versions") == [2, 3]
    assert answer(http, f"GET /subjects/{subject}/versions?deleted=TRUE") == [1, 2, 3]
    assert answer(http, f"GET /subjects/{subject}/versions?deletedOnly=true") == [1]
    assert answer(http, f"GET /subjects/{subject}/versions?deleted=true&deletedAsNegative=true") == [-1, 2, 3]
    assert answer(http, f"DELETE {first}?permanent=true") == 1
    assert refusal(http, f"GET {first}?deleted=true")[:2] == (404, 40402)

    assert refusal(http, f"DELETE /subjects/{subject}?permanent=true")[:2] == (404, 40405)
    assert answer(http, f"DELETE /subjects/{subject}") == [2, 3]
    assert refusal(http, f"DELETE /subjects/{subject}")[:2] == (404, 40404)
    assert subject not in answer(http, "GET /subjects")
    assert subject in answer(http, "GET /subjects?deleted=true")
    assert subject in answer(http, "GET /subjects?deletedOnly=true")
    assert answer(http, f"DELETE /subjects/{subject}?permanent=true") == [2, 3]
    assert subject not in answer(http, "GET /subjects?deleted=true")
    assert refusal(http, f"DELETE /subjects/{subject}")[:2] == (404, 40401)


def test_lists_have_pages(http: httpx.Client, subject: str) -> None:
    names = [f"{subject}-{number}" for number in range(5)]
    ids = {register(http, name, STRING) for name in names}
    for path in (f"/subjects?subjectPrefix={subject}", f"/schemas?subjectPrefix={subject}"):
        found = answer(http, f"GET {path}&offset=1&limit=2")
        assert [one if isinstance(one, str) else one["subject"] for one in found] == names[1:3]
        assert len(answer(http, f"GET {path}&limit=-1")) == 5
        assert answer(http, f"GET {path}&offset=5") == []
    (schema_id,) = ids
    listed = answer(http, f"GET /schemas/ids/{schema_id}/subjects")
    assert answer(http, f"GET /schemas/ids/{schema_id}/subjects?offset=1&limit=2") == listed[1:3]


def test_compatibility_is_checked_without_registering(http: httpx.Client, subject: str) -> None:
    checks = f"/compatibility/subjects/{subject}/versions"
    for version in ("", "/latest"):
        assert answer(http, f"POST {checks}{version}", {"schema": INT}) == {"is_compatible": True}
    register(http, subject, INT)
    for version in ("", "/latest", "/1"):
        assert answer(http, f"POST {checks}{version}", {"schema": LONG}) == {"is_compatible": True}
        assert answer(http, f"POST {checks}{version}", {"schema": STRING})["is_compatible"] is False
        found = answer(http, f"POST {checks}{version}?verbose=true", {"schema": STRING})
        assert found["is_compatible"] is False
        assert found["messages"]
    assert answer(http, f"POST {checks}/1?verbose=True", {"schema": "{"})["is_compatible"] is False
    assert answer(http, f"GET /subjects/{subject}/versions") == [1]
    assert refusal(http, f"POST /subjects/{subject}/versions", {"schema": STRING})[:2] == (409, 409)
    assert answer(http, f"POST /subjects/{subject}/versions?force=true", {"schema": STRING})["id"]


def test_configurations_have_a_scope(http: httpx.Client, subject: str) -> None:
    assert answer(http, "GET /config") == {"compatibilityLevel": "BACKWARD"}
    assert refusal(http, f"GET /config/{subject}")[:2] == (404, 40408)
    in_effect = answer(http, f"GET /config/{subject}?defaultToGlobal=true")
    assert in_effect["compatibilityLevel"] == "BACKWARD"
    assert answer(http, f"PUT /config/{subject}", {"compatibility": "full"}) == {"compatibility": "FULL"}
    assert answer(http, f"GET /config/{subject}") == {"compatibilityLevel": "FULL"}
    assert answer(http, f"PUT /config/{subject}", {"normalize": True}) == {"normalize": True}
    both = {"compatibilityLevel": "FULL", "normalize": True}
    assert answer(http, f"GET /config/{subject}") == both
    assert answer(http, f"DELETE /config/{subject}") == both
    assert refusal(http, f"GET /config/{subject}")[:2] == (404, 40408)
    assert refusal(http, f"DELETE /config/{subject}")[:2] == (404, 40401)
    assert answer(http, "PUT /config", {"compatibility": "NONE"}) == {"compatibility": "NONE"}
    assert answer(http, "DELETE /config") == {"compatibilityLevel": "NONE"}
    assert answer(http, "GET /config") == {"compatibilityLevel": "BACKWARD"}


def test_modes_have_a_scope(http: httpx.Client, subject: str) -> None:
    assert answer(http, "GET /mode") == {"mode": "READWRITE"}
    assert refusal(http, f"GET /mode/{subject}")[:2] == (404, 40409)
    assert answer(http, f"GET /mode/{subject}?defaultToGlobal=true") == {"mode": "READWRITE"}
    assert answer(http, f"PUT /mode/{subject}", {"mode": "READONLY"}) == {"mode": "READONLY"}
    assert answer(http, f"GET /mode/{subject}") == {"mode": "READONLY"}
    assert refusal(http, f"POST /subjects/{subject}/versions", {"schema": INT})[:2] == (422, 42205)
    assert refusal(http, f"PUT /config/{subject}", {"compatibility": "FULL"})[:2] == (422, 42205)
    assert answer(http, f"DELETE /mode/{subject}") == {"mode": "READONLY"}
    assert refusal(http, f"DELETE /mode/{subject}")[:2] == (404, 40401)
    assert refusal(http, f"POST /subjects/{subject}/versions", {"schema": INT, "id": 77})[:2] == (422, 42205)
    assert answer(http, f"PUT /mode/{subject}?force=true", {"mode": "IMPORT"}) == {"mode": "IMPORT"}
    assert register(http, subject, INT, id=70_001, version=3) == 70_001
    assert answer(http, f"GET /subjects/{subject}/versions") == [3]
    refused = {"schema": INT, "id": 70_002}
    assert refusal(http, f"POST /subjects/{subject}/versions", refused)[:2] == (422, 42207)


def test_contexts_have_ids_of_their_own(http: httpx.Client, subject: str) -> None:
    assert "." in answer(http, "GET /contexts")
    name = f":.{subject}:orders"
    assert register(http, name, '"bytes"') == 1
    assert f".{subject}" in answer(http, "GET /contexts")
    assert answer(http, f"GET /contexts?contextPrefix=.{subject}") == [f".{subject}"]
    assert answer(http, f"GET /schemas/ids/1?subject={name}") == {"schema": '"bytes"'}
    assert answer(http, f"GET /subjects?subjectPrefix=:.{subject}:") == [name]
    assert name not in answer(http, "GET /subjects?subjectPrefix=")
    assert name in answer(http, "GET /subjects")
    assert refusal(http, f"DELETE /contexts/.{subject}")[:2] == (422, 42211)
    answer(http, f"DELETE /subjects/{name}")
    answer(http, f"DELETE /subjects/{name}?permanent=true")
    assert call(http, f"DELETE /contexts/.{subject}").status_code == 204


def test_the_registry_says_what_it_is(http: httpx.Client) -> None:
    for target in ("GET /", "POST /"):
        assert answer(http, target) == {}
    assert sorted(answer(http, "GET /schemas/types")) == ["AVRO", "JSON", "PROTOBUF"]
    assert answer(http, "GET /v1/metadata/id")["scope"]["clusters"]["kafka-cluster"]
    assert answer(http, "GET /v1/metadata/version")["version"]
    schema_id = register(http, "said", STRING)
    assert answer(http, f"GET /schemas/ids/{schema_id}?fetchMaxId=true")["maxId"] >= schema_id


# ── how each route refuses ──


class Refused(NamedTuple):
    target: str
    status: int
    code: int
    body: Any = None


_SCHEMA = {"schema": INT}
_BROKEN = {"schema": '{"type": "nothing"}'}
# An existing subject has one version, 1, with the schema "int" and the level BACKWARD.
REFUSALS: Sequence[Refused] = [
    # ── subjects ──
    Refused("GET /subjects?limit=many", 400, 400),
    Refused("GET /subjects?deleted=perhaps", 400, 400),
    Refused("POST /subjects/absent", 404, 40401, _SCHEMA),
    Refused("POST /subjects/existing", 404, 40403, {"schema": STRING}),
    Refused("POST /subjects/existing", 422, 42201, _BROKEN),
    Refused("POST /subjects/existing", 422, 422, {}),
    Refused("POST /subjects/existing", 422, 422, "text"),
    Refused("DELETE /subjects/absent", 404, 40401),
    Refused("DELETE /subjects/existing?permanent=true", 404, 40405),
    # ── versions ──
    Refused("GET /subjects/absent/versions", 404, 40401),
    Refused("POST /subjects/existing/versions", 409, 409, {"schema": STRING}),
    Refused("POST /subjects/existing/versions", 422, 42201, {"schema": ""}),
    Refused("POST /subjects/existing/versions", 422, 42201, _BROKEN),
    Refused("POST /subjects/existing/versions", 422, 42201, {**_SCHEMA, "version": 7, "schemaType": "JSON"}),
    Refused("POST /subjects/existing/versions", 422, 42205, {"schema": LONG, "id": 5}),
    Refused("POST /subjects/existing/versions", 422, 422, {}),
    Refused("POST /subjects/existing/versions", 422, 422, -1),
    Refused("POST /subjects/existing/versions", 422, 422, {"schema": {"type": "int"}}),
    Refused("POST /subjects/existing/versions", 422, 422, {"schema": None}),
    Refused("POST /subjects/a%0Ab/versions", 422, 42208, _SCHEMA),
    Refused("POST /subjects/a%00b/versions", 422, 42208, _SCHEMA),
    Refused("POST /subjects/__GLOBAL/versions", 422, 42208, _SCHEMA),
    Refused("GET /subjects/absent/versions/1", 404, 40401),
    Refused("GET /subjects/existing/versions/9", 404, 40402),
    *(
        Refused(f"GET /subjects/existing/versions/{version}{rest}", 422, 42202)
        for version in ("0", "-2", "2147483648", "newest", "1.0", "%20")
        for rest in ("", "/schema", "/referencedby")
    ),
    Refused("GET /subjects/absent/versions/1/schema", 404, 40401),
    Refused("GET /subjects/existing/versions/9/schema", 404, 40402),
    Refused("GET /subjects/absent/versions/1/referencedby", 404, 40401),
    Refused("GET /subjects/existing/versions/9/referencedby", 404, 40402),
    Refused("DELETE /subjects/absent/versions/1", 404, 40401),
    Refused("DELETE /subjects/existing/versions/9", 404, 40402),
    Refused("DELETE /subjects/existing/versions/0", 422, 42202),
    Refused("DELETE /subjects/existing/versions/1?permanent=true", 404, 40407),
    Refused("GET /subjects/absent/metadata?key=a&value=b", 404, 40401),
    # ── schemas ──
    Refused("GET /schemas?offset=-1", 400, 400),
    *(
        Refused(f"GET /schemas/ids/{rest}", 404, code)
        for found, code in (
            ("2147483647", 40403),
            ("0", 40403),
            ("one", 404),
            ("-1", 404),
            ("4294967296", 404),
        )
        for rest in (found, f"{found}/schema", f"{found}/subjects", f"{found}/versions")
    ),
    Refused("GET /schemas/guids/00000000-0000-0000-0000-000000000000", 404, 40403),
    Refused("GET /schemas/guids/none", 404, 40403),
    Refused("GET /schemas/guids/none/ids", 404, 40403),
    # ── compatibility ──
    Refused("POST /compatibility/subjects/absent/versions/1", 404, 40402, _SCHEMA),
    Refused("POST /compatibility/subjects/existing/versions/9", 404, 40402, _SCHEMA),
    Refused("POST /compatibility/subjects/existing/versions/0", 422, 42202, _SCHEMA),
    Refused("POST /compatibility/subjects/existing/versions/1", 422, 42201, _BROKEN),
    Refused("POST /compatibility/subjects/existing/versions", 422, 42201, _BROKEN),
    Refused("POST /compatibility/subjects/existing/versions", 422, 422, []),
    # ── configurations and modes ──
    *(
        refused
        for path in ("", "/existing", "/absent", "/:.eu:")
        for refused in (
            Refused(f"PUT /config{path}", 422, 42203, {"compatibility": "BACKWARDS"}),
            Refused(f"PUT /config{path}", 422, 422, {"compatibility": 1}),
            Refused(f"PUT /config{path}", 422, 422, []),
            Refused(f"PUT /mode{path}", 422, 42204, {"mode": "WRITEONLY"}),
            Refused(f"PUT /mode{path}", 422, 422, {}),
        )
    ),
    Refused("GET /config/absent", 404, 40408),
    Refused("DELETE /config/absent", 404, 40401),
    Refused("GET /mode/absent", 404, 40409),
    Refused("DELETE /mode/absent", 404, 40401),
    Refused("PUT /mode/existing", 422, 42204, {"mode": "FORWARD"}),
    Refused("PUT /mode/existing", 422, 42205, {"mode": "IMPORT"}),
    # ── what is not served ──
    Refused("GET /nothing", 404, 404),
    Refused("GET /subjects/existing/nothing", 404, 404),
    Refused("GET /associations/resources/-/orders", 404, 404),
    Refused("GET /dek-registry/v1/keks", 404, 404),
    Refused("PUT /subjects", 405, 405, {}),
    Refused("POST /schemas/types", 405, 405, {}),
    Refused("PATCH /config", 405, 405, {}),
    Refused("GET /subjects/%FF/versions", 400, 400),
]


@pytest.fixture(scope="module")
def existing(http: httpx.Client) -> str:
    register(http, "existing", INT)
    return "existing"


@pytest.mark.parametrize("refused", REFUSALS, ids=lambda refused: f"{refused.target} {refused.code}")
def test_it_is_refused(http: httpx.Client, existing: str, refused: Refused) -> None:
    status, code, message = refusal(http, refused.target, refused.body)
    assert (status, code) == (refused.status, refused.code), message
    assert message
    assert answer(http, f"GET /subjects/{existing}/versions") == [1]


def test_the_methods_of_a_path_are_named(http: httpx.Client) -> None:
    response = call(http, "PUT /subjects/existing/versions", {})
    assert response.headers["allow"] == "GET, HEAD, POST"


def test_every_refusal_of_a_client_is_in_the_table() -> None:
    from app.registry import errors

    codes = {
        kind.error_code
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.RegistryError) and hasattr(kind, "error_code")
    }
    in_table = {refused.code for refused in REFUSALS}
    # Tested above where they need a course of events; those of the store, with the registry itself.
    elsewhere = {40404, 40406, 42206, 42207, 42209, 42210, 42211, 50001, 50002}
    assert codes - in_table == elsewhere
