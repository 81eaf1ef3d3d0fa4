"""A value is taken, or refused for the same reason, whichever protocol brings it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from stele import Client, NewRecord
from stele.broker_process import BrokerProcess
from stele.errors import SteleClientError
from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from stele.wire.kafka.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

from tests.support.batches import batch_of_times
from tests.support.kafka_peer import WITHOUT_RETENTION, KafkaPeer, create_topic, only_partition, produce
from tests.support.kafka_topic_configs import DIFFERENCES, SPELLINGS, TOPIC_CONFIGS
from tests.support.warm_processes import run_stele

TOPIC, SET = 2, 0
Answer = tuple[int, str | None]
# A setter: name and value of a configuration → the error code and the message, (0, None) if it is taken.
Setter = Callable[[str, str | None], Answer]
TAKEN: Answer = (0, None)


ENVIRONMENT = WITHOUT_RETENTION


@pytest.fixture(scope="module")
def peer(broker: BrokerProcess) -> Iterator[KafkaPeer]:
    with KafkaPeer(broker) as peer:
        yield peer


@pytest.fixture(scope="module")
def http(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=broker.http_url) as client:
        yield client


@pytest.fixture(scope="module")
def clients(broker: BrokerProcess) -> Iterator[dict[str, Client]]:
    with Client(broker.binary_url) as binary, Client(broker.http_url) as over_http:
        yield {"binary": binary, "client over HTTP": over_http}


# ── configurations ──


@pytest.fixture(scope="module")
def setters(peer: KafkaPeer, http: httpx.Client, clients: dict[str, Client]) -> dict[str, Setter]:
    """Every way to set a configuration of a topic; what is taken is undone."""
    create_topic(peer, "altered")

    def kafka_create(name: str, value: str | None) -> Answer:
        topic = CreatableTopic(
            name="new",
            num_partitions=1,
            replication_factor=1,
            assignments=[],
            configs=[CreatableTopicConfig(name=name, value=value)],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=9000, validate_only=True)
        (result,) = peer.call(request, 7).topics
        return result.error_code, result.error_message

    def kafka_replace(name: str, value: str | None) -> Answer:
        config = AlterableConfig(name=name, value=value)
        resource = AlterConfigsResource(resource_type=TOPIC, resource_name="altered", configs=[config])
        request = AlterConfigsRequest(resources=[resource], validate_only=True)
        (result,) = peer.call(request, 2).responses
        return result.error_code, result.error_message

    def kafka_change(name: str, value: str | None) -> Answer:
        config = IncrementalAlterableConfig(name=name, config_operation=SET, value=value)
        resource = IncrementalAlterConfigsResource(
            resource_type=TOPIC, resource_name="altered", configs=[config]
        )
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=True)
        (result,) = peer.call(request, 1).responses
        return result.error_code, result.error_message

    def http_answer(answer: httpx.Response) -> Answer:
        if answer.is_success:
            return TAKEN
        problem = answer.json()
        assert (answer.status_code, problem["type"]) == (400, "/problems/invalid-config")
        return problem["kafka_code"], problem["detail"]

    def http_create(name: str, value: str | None) -> Answer:
        answer = http_answer(http.put("/v1/topics/new", json={"configs": {name: value}}))
        http.delete("/v1/topics/new")
        return answer

    def http_change(name: str, value: str | None) -> Answer:
        answer = http_answer(http.patch("/v1/topics/altered", json={"configs": {name: value}}))
        http.patch("/v1/topics/altered", json={"configs": {name: None}})
        return answer

    def client_answer(call: Callable[[], object]) -> Answer:
        try:
            call()
        except SteleClientError as error:
            return error.code or ErrorCode.UNKNOWN_SERVER_ERROR, str(error)
        return TAKEN

    def client_create(client: Client) -> Setter:
        def create(name: str, value: str | None) -> Answer:
            answer = client_answer(lambda: client.create_topic("new", configs={name: value}))
            if answer == TAKEN:
                client.delete_topic("new")
            return answer

        return create

    def client_change(client: Client) -> Setter:
        def change(name: str, value: str | None) -> Answer:
            answer = client_answer(lambda: client.alter_topic("altered", configs={name: value}))
            if answer == TAKEN:
                client.alter_topic("altered", configs={name: None})
            return answer

        return change

    made: dict[str, Setter] = {
        "CreateTopics": kafka_create,
        "AlterConfigs": kafka_replace,
        "IncrementalAlterConfigs": kafka_change,
        "PUT": http_create,
        "PATCH": http_change,
    }
    for name, client in clients.items():
        made[f"create, {name}"] = client_create(client)
        made[f"alter, {name}"] = client_change(client)
    return made


SETTERS = (
    *("CreateTopics", "AlterConfigs", "IncrementalAlterConfigs", "PUT", "PATCH"),
    *(f"{act}, {protocol}" for act in ("create", "alter") for protocol in ("binary", "client over HTTP")),
)


@pytest.mark.parametrize("setter", SETTERS)
def test_what_kafka_refuses_is_refused_with_its_code_and_message(
    setters: dict[str, Setter], setter: str
) -> None:
    for name, config in TOPIC_CONFIGS.items():
        for value in dict.fromkeys((config.refuses[0], config.refuses[-1])):
            if (name, value) not in DIFFERENCES:
                expected = setters["CreateTopics"](name, value)
                assert expected[0] == ErrorCode.INVALID_CONFIG
                assert setters[setter](name, value) == expected
    assert setters[setter]("no.such", "1") == (ErrorCode.INVALID_CONFIG, "Unknown topic config name: no.such")


@pytest.mark.parametrize("setter", SETTERS)
def test_a_value_may_be_written_in_the_same_ways(setters: dict[str, Setter], setter: str) -> None:
    for name, (taken, refused) in SPELLINGS.items():
        for value in taken:
            # Text of the binary protocol and of a body may hold any character.
            assert setters[setter](name, value)[0] == ErrorCode.NONE, (name, value)
        for value in refused:
            assert setters[setter](name, value)[0] == ErrorCode.INVALID_CONFIG, (name, value)


@pytest.mark.parametrize("setter", ["CreateTopics", "PUT", "create, binary", "create, client over HTTP"])
def test_a_new_topic_has_no_configuration_without_a_value(setters: dict[str, Setter], setter: str) -> None:
    message = "Null value not supported for topic configs: retention.ms"
    assert setters[setter]("retention.ms", None) == (ErrorCode.INVALID_CONFIG, message)


def test_null_resets_a_configuration_of_a_topic_that_exists(clients: dict[str, Client]) -> None:
    for name, client in clients.items():
        topic = f"reset-{name.replace(' ', '-')}"
        client.create_topic(topic, configs={"retention.ms": 5, "preallocate": True})
        client.alter_topic(topic, configs={"retention.ms": None})
        configs = client.describe_topic(topic).configs
        assert (configs["retention.ms"], configs["preallocate"]) == ("604800000", "true")


def test_a_number_of_json_is_the_text_that_it_is(http: httpx.Client) -> None:
    configs = {"min.cleanable.dirty.ratio": 0.25, "retention.ms": 5, "preallocate": False}
    made = http.put("/v1/topics/numbers", json={"configs": configs}).json()["configs"]
    assert made == {"min.cleanable.dirty.ratio": "0.25", "retention.ms": "5", "preallocate": "false"}
    refused = http.put("/v1/topics/other", json={"configs": {"retention.ms": 5.0}}).json()
    assert (refused["kafka_code"], "Invalid value 5.0" in refused["detail"]) == (40, True)


def test_the_command_line_sends_values_as_they_are_and_takes_each_name_once(broker: BrokerProcess) -> None:
    def create(*options: str) -> tuple[int, str]:
        environment = {**os.environ, "STELE_URL": broker.binary_url}
        done = run_stele("topics", "create", "typed", *options, env=environment)
        return done.returncode, done.stderr.decode()

    code, text = create("--config", "retention.ms=1_000")
    assert (
        code,
        "Invalid value 1_000 for configuration retention.ms: Not a number of type LONG" in text,
    ) == (
        1,
        True,
    )
    code, text = create("--config", "retention.ms=1", "--config", "retention.ms=2")
    assert (code, "retention.ms is given twice" in text) == (2, True)


# ── timestamps ──

# By topic: times that it takes, times that it refuses. -1 is none; less is before 1970 (measured of Kafka 4.3.1).
HOUR_MS = 3_600_000
TIMES: dict[str, tuple[dict[str, str], tuple[int, ...], tuple[int, ...]]] = {
    "any-past": ({}, (-1, -2, -100, -(2**62), 0, 1), (2**62, 2**63 - 1)),
    "bounded": (
        {"message_timestamp_before_max_ms": str(HOUR_MS)},
        (-1,),
        (-2, -100, -(2**62), 0, 1, 2**63 - 1),
    ),
    "stamping": (
        {"message_timestamp_type": "LogAppendTime"},
        (-1, -2, -(2**62), 0, 2**62),
        (),
    ),
}
WAYS = ("kafka", "json", "ndjson", "octets", "binary", "client over HTTP", "transaction")


def kafka_code(answer: httpx.Response) -> int:
    """Return the code of the only record, 0 if it was stored."""
    document = answer.json()
    if answer.is_success and "error" not in document:
        return 0
    errors: list[dict[str, Any]] = document.get("errors") or [document.get("error", document)]
    return errors[0]["kafka_code"]


def produced(
    way: str,
    topic: str,
    timestamp_ms: int,
    *,
    peer: KafkaPeer,
    http: httpx.Client,
    clients: dict[str, Client],
) -> int:
    path, record = f"/v1/topics/{topic}/records", {"value": str(timestamp_ms), "timestamp": timestamp_ms}
    match way:
        case "kafka":
            return only_partition(peer.call(produce(topic, batch_of_times([timestamp_ms])), 9)).error_code
        case "json":
            return kafka_code(http.post(path, json={"records": [record]}))
        case "ndjson":
            headers = {"content-type": "application/x-ndjson"}
            answer = http.post(path, content=httpx.Response(200, json=record).content, headers=headers)
            return kafka_code(httpx.Response(answer.status_code, content=answer.content.splitlines()[0]))
        case "octets":
            headers = {"content-type": "application/octet-stream", "record-timestamp": str(timestamp_ms)}
            return kafka_code(http.post(path, content=str(timestamp_ms), headers=headers))
        case "transaction":
            return kafka_code(http.post("/v1/transactions", json={"records": [record | {"topic": topic}]}))
        case _:
            try:
                clients[way].produce_many(topic, [NewRecord(str(timestamp_ms), timestamp=timestamp_ms)])
            except SteleClientError as error:
                return _code(error)
            return 0


def _code(error: SteleClientError) -> int:
    errors: dict[int, SteleClientError] = getattr(error, "errors", {})
    code = next(iter(errors.values()), error).code
    assert code is not None
    return code


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", TIMES)
def test_a_time_below_zero_or_none_is_taken_by_one_rule_and_read_as_it_was_given(
    kind: str, way: str, peer: KafkaPeer, http: httpx.Client, clients: dict[str, Client]
) -> None:
    configs, taken, refused = TIMES[kind]
    topic = f"{kind}-{way.replace(' ', '-')}"
    create_topic(peer, topic, 1, **configs)
    for timestamp_ms in (*taken, *refused):
        code = produced(way, topic, timestamp_ms, peer=peer, http=http, clients=clients)
        expected = ErrorCode.INVALID_TIMESTAMP if timestamp_ms in refused else ErrorCode.NONE
        assert (timestamp_ms, code) == (timestamp_ms, expected)
    records = http.get(f"/v1/topics/{topic}/partitions/0/records").json()["records"]
    read = {
        "HTTP": [record["timestamp"] for record in records],
        "binary": [record.timestamp for record in clients["binary"].fetch(topic, 0, 0).records],
        "Arrow": arrow_times(http, topic),
    }
    assert [int(record["value"]) for record in records] == list(taken)
    assert read["HTTP"] == read["binary"]
    if kind == "stamping":
        assert min(read["HTTP"]) > 1_700_000_000_000
    else:
        assert read["HTTP"] == list(taken)
    # Arrow counts microseconds, of which 64 bits hold fewer years.
    assert read["Arrow"] == [max(-((2**63 - 1) // 1000), time) if time < 0 else time for time in read["HTTP"]]


def arrow_times(http: httpx.Client, topic: str) -> list[int]:
    pyarrow = pytest.importorskip("pyarrow")
    headers = {"accept": "application/vnd.apache.arrow.stream"}
    body = http.get(f"/v1/topics/{topic}/partitions/0/records", headers=headers).content
    column = pyarrow.ipc.open_stream(body).read_all()["timestamp"]
    return [micros // 1000 for micros in column.cast(pyarrow.int64()).to_pylist()]


@pytest.mark.parametrize("timestamp", [2**63, -(2**63) - 1])
def test_a_time_that_no_batch_can_hold_is_refused(
    timestamp: int, http: httpx.Client, clients: dict[str, Client], peer: KafkaPeer
) -> None:
    create_topic(peer, f"beyond-{timestamp > 0}")
    path = f"/v1/topics/beyond-{timestamp > 0}/records"
    body = {"records": [{"value": "a", "timestamp": timestamp}]}
    assert http.post(path, json=body).status_code == 400
    headers = {"content-type": "application/octet-stream", "record-timestamp": str(timestamp)}
    assert http.post(path, content=b"a", headers=headers).status_code == 400
    for client in clients.values():
        with pytest.raises(ValueError, match="timestamp"):
            client.produce_many(f"beyond-{timestamp > 0}", [NewRecord("a", timestamp=timestamp)])


# ── numbers, booleans and times of queries ──

NO_NUMBERS = ("1_0", "\u0663", "\xb2", "+1", "1.0", " 1", "1e3", "0x1", "9" * 20, "9" * 5000, "x")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/topics?limit={}", 400),
        ("/v1/topics/queried/partitions/0/records?wait_ms={}", 400),
        ("/v1/topics/queried/partitions/0/records?from={}", 400),
        ("/v1/topics/queried/partitions/{}/records", 404),
        ("/v1/topics/queried/partitions/0/records/{}", 404),
        ("/v1/topics/queried/partitions/0/producers/{}", 404),
        ("/v1/topics/queried/search?partitions={}", 400),
        ("/v1/producers?name=a&version={}", 400),
    ],
)
def test_a_number_of_a_request_is_ascii_digits(
    path: str, status: int, http: httpx.Client, peer: KafkaPeer
) -> None:
    http.put("/v1/topics/queried")
    method = "POST" if path.startswith("/v1/producers") else "GET"
    for text in NO_NUMBERS:
        answer = http.request(method, path.format(httpx.QueryParams({"n": text})["n"].replace("+", "%2B")))
        assert (text, answer.status_code) == (text, status)
        assert answer.headers["content-type"] == "application/problem+json"


def test_a_number_of_a_header_is_ascii_digits(http: httpx.Client) -> None:
    http.put("/v1/topics/queried")
    for text in ("1_0", b"\xb2", "+1", "1.0", "9" * 20, "0" * 5000, "x"):
        headers: Any = {
            "content-type": "application/octet-stream",
            "producer-id": text,
            "producer-epoch": "0",
            "producer-sequence": "0",
        }
        assert http.post("/v1/topics/queried/records", content=b"a", headers=headers).status_code == 400


def test_a_boolean_of_a_query_is_true_or_false(http: httpx.Client) -> None:
    http.put("/v1/topics/queried")
    http.put("/v1/groups/unread/offsets", json={"to": "earliest", "topics": ["queried"]})
    reset = {"to": "latest", "topics": ["queried"]}
    for text, expected in {"true": 200, "TRUE": 200, "False": 200, "1": 400, "yes": 400, "": 400}.items():
        assert http.get("/v1/topics", params={"sizes": text}).status_code == expected
        answer = http.put("/v1/groups/unread/offsets", params={"dry_run": text}, json=reset)
        assert answer.status_code == expected
        assert expected == 400 or answer.json()["dry_run"] is (text.lower() == "true")


def test_a_time_is_the_same_in_every_request_that_has_one(http: httpx.Client, peer: KafkaPeer) -> None:
    create_topic(peer, "timed")
    records = [{"value": str(hour), "timestamp": hour * HOUR_MS} for hour in range(4)]
    http.post("/v1/topics/timed/records", json={"records": records})
    partition = "/v1/topics/timed/partitions/0"
    for text, offset in {
        "1970-01-01T02:00": 2,
        "1970-01-01T02:00Z": 2,
        "1970-01-01T03:30+02:00": 2,
        "-1h": 4,
    }.items():
        reset = http.put("/v1/groups/timed/offsets", json={"to": text, "topics": ["timed"]})
        assert reset.json()["offsets"][0]["after"] == offset
        page = http.get(f"{partition}/records", params={"from": text}).json()
        assert (page["next_offset"], len(page["records"])) == (4, 4 - offset)
        if text != "-1h":
            assert http.get(f"{partition}/offsets", params={"at": text}).json()["offset"] == offset
    for text in ("-1M", "1970-01-01", "19700101T0200", "-\u0661h", "yesterday"):
        refused = [
            http.put("/v1/groups/timed/offsets", json={"to": text, "topics": ["timed"]}),
            http.get(f"{partition}/records", params={"from": text}),
            http.get(f"{partition}/offsets", params={"at": text}),
            http.delete(f"{partition}/records", params={"before": text}),
        ]
        assert [answer.status_code for answer in refused] == [400] * 4
