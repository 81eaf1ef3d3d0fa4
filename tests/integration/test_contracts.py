"""A topic with a contract refuses what breaks it, whichever way it comes."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.serialization import MessageField, SerializationContext
from stele import Client, InvalidRecordError, NewRecord, ProduceError, SchemaRegistry
from stele.broker_process import BrokerProcess, run_broker
from stele.schemas import framing
from stele.wire.compression import Compression
from stele.wire.error_codes import ErrorCode

from tests.support.batches import batch_of
from tests.support.brokers import BROKERS, run_broker_or_cluster
from tests.support.confluent_serializers import AvroSerializer
from tests.support.contracts import CUT, ORDER, TEA, Senders, end_of, framed, make_topic, record, register
from tests.support.kafka_peer import WITHOUT_RETENTION, KafkaPeer, create_topic, only_partition, produce, put
from tests.support.waiting import eventually

_numbers = itertools.count()
KAFKA = ("Kafka Produce", "Kafka Produce of an old version", "Kafka Produce, compressed")
HTTP = (
    *("HTTP JSON", "HTTP NDJSON", "HTTP octets", "HTTP If-Match"),
    *("HTTP idempotent", "HTTP transaction", "HTTP atomic request"),
)
BINARY = ("binary PRODUCE", "binary batch", "binary batch, conditional")
SENDERS = (
    *KAFKA,
    *("Kafka transaction", "librdkafka"),
    *HTTP,
    *BINARY,
    *("client over HTTP", "client transaction"),
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with run_broker_or_cluster(tmp_path_factory.mktemp("contracts"), environment=WITHOUT_RETENTION) as broker:
        yield broker


@pytest.fixture(scope="module")
def http(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=broker.http_url, timeout=60) as http:
        yield http


@pytest.fixture(scope="module")
def senders(broker: BrokerProcess) -> Iterator[Senders]:
    senders = Senders(broker)
    yield senders
    senders.close()


@pytest.fixture(scope="module")
def peer(broker: BrokerProcess) -> Iterator[KafkaPeer]:
    with KafkaPeer(broker) as peer:
        yield peer


@pytest.fixture
def topic() -> str:
    """A name nobody else uses, for the broker is shared."""
    return f"contract-{next(_numbers)}"


def values(http: httpx.Client, topic: str) -> int:
    """Return how many records readers of committed records see."""
    return len(http.get(f"/v1/topics/{topic}/partitions/0/records?limit=1000").json()["records"])


def test_all_senders_are_in_the_table(senders: Senders) -> None:
    assert set(SENDERS) == set(senders.by_name)


@pytest.mark.parametrize("sender", SENDERS)
def test_a_record_that_breaks_it_is_refused_and_nothing_of_its_batch_is_stored(
    broker: BrokerProcess, http: httpx.Client, senders: Senders, topic: str, sender: str
) -> None:
    send = senders.by_name[sender]
    make_topic(http, topic)
    schema = register(broker.registry_url, f"{topic}-value")
    other = register(broker.registry_url, f"other-{topic}", '"int"')
    good = framed(schema)
    assert send(topic, [good, good]) is None
    assert values(http, topic) == 2
    for bad, reason in (
        (b"tea", "its value names no schema: 3 bytes are fewer than the 5 of the prefix"),
        (b'{"id": 1}', "its value names no schema: the first byte is 0x7b, not 0x00"),
        (framed(2**31 - 1), "schema 2147483647 of its value is not registered"),
        (
            framed(other, b"\2"),
            f"schema {other} of its value is not registered under subject '{topic}-value'",
        ),
        (framed(schema, CUT), f"its value does not match schema {schema} at /item: the bytes end within it"),
    ):
        refused = send(topic, [bad])
        assert refused is not None
        assert refused.record in (0, -1)
        if refused.record == 0:
            assert f"record 0 was refused: {reason}" in refused.reason
    assert values(http, topic) == 2
    refused = send(topic, [good, framed(schema, CUT), good])
    assert refused is not None
    # Each record of the client's transaction is a request of its own.
    assert refused.record in (1, -1) or sender == "client transaction"
    # Those of which each value is a request of its own.
    stored = {"binary PRODUCE": 2, "HTTP octets": 1}.get(sender, 0)
    assert values(http, topic) == 2 + stored
    # What is right is taken after a refusal.
    assert send(topic, [good]) is None
    assert values(http, topic) == 3 + stored


@pytest.mark.parametrize("sender", ["Kafka Produce", "HTTP JSON", "binary batch"])
def test_only_the_id_counts_if_that_is_all_that_is_asked_for(
    broker: BrokerProcess, http: httpx.Client, senders: Senders, topic: str, sender: str
) -> None:
    make_topic(http, topic, "id")
    schema = register(broker.registry_url, f"{topic}-value")
    send = senders.by_name[sender]
    assert send(topic, [framed(schema, CUT)]) is None
    assert send(topic, [framed(schema + 1000)]) is not None


def test_the_answer_over_http_has_the_place(
    broker: BrokerProcess, http: httpx.Client, senders: Senders, topic: str
) -> None:
    make_topic(http, topic)
    schema = register(broker.registry_url, f"{topic}-value")
    records = [record(framed(schema, payload)) for payload in (TEA, CUT, TEA, CUT)]
    answer = http.post(f"/v1/topics/{topic}/records?partition=0", json={"records": records})
    problem = answer.json()
    assert (answer.status_code, problem["index"], problem["pointer"]) == (422, 1, "/item")
    errors = problem["errors"]
    assert [error["index"] for error in errors] == [0, 1, 2, 3]
    assert [error.get("pointer") for error in errors] == [None, "/item", None, "/item"]
    assert errors[3]["detail"].startswith("record 3 was refused: its value does not match schema")
    # Records that are refused with others have the reason of those.
    assert errors[0]["detail"] == problem["detail"]


def test_other_partitions_of_a_request_keep_their_records(
    broker: BrokerProcess, http: httpx.Client, topic: str
) -> None:
    configs = {"stele.value.schema.validation": "content"}
    assert http.put(f"/v1/topics/{topic}", json={"partitions": 2, "configs": configs}).is_success
    schema = register(broker.registry_url, f"{topic}-value")
    records = [
        record(framed(schema, payload)) | {"partition": partition}
        for partition, payload in ((0, TEA), (1, TEA), (0, CUT), (1, TEA))
    ]
    answer = http.post(f"/v1/topics/{topic}/records", json={"records": records})
    assert answer.status_code == 207
    errors = answer.json()["errors"]
    assert [(error["index"], error.get("pointer")) for error in errors] == [(0, None), (2, "/item")]


def test_kafka_names_each_record_at_fault(
    broker: BrokerProcess, http: httpx.Client, peer: KafkaPeer, topic: str
) -> None:
    make_topic(http, topic)
    schema = register(broker.registry_url, f"{topic}-value")
    batch = batch_of([framed(schema, payload) for payload in (CUT, TEA, CUT)])
    done = only_partition(peer.call(produce(topic, batch, acks=-1), 12))
    assert done.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in done.record_errors] == [0, 2]
    assert "/item" in done.record_errors[1].batch_index_error_message
    assert end_of(http, topic) == 0


def test_ten_reasons_are_given_at_most(http: httpx.Client, peer: KafkaPeer, topic: str) -> None:
    make_topic(http, topic)
    done = only_partition(peer.call(produce(topic, batch_of([b"x"] * 100), acks=-1), 12))
    assert [error.batch_index for error in done.record_errors] == list(range(10))


def test_null_passes_and_keys_have_a_contract_of_their_own(
    broker: BrokerProcess, http: httpx.Client, topic: str
) -> None:
    make_topic(http, topic, "none", stele_key_schema_validation="content")
    schema = register(broker.registry_url, f"{topic}-key", '"string"')
    key = framed(schema, bytes((6,)) + b"ada")
    with Client(broker.binary_url) as client:
        client.produce(topic, b"anything", key=key)
        client.produce(topic, b"no key")
        client.produce(topic, None, key=key)
        with pytest.raises(InvalidRecordError, match="its key names no schema"):
            client.produce(topic, b"anything", key=b"ada")
        client.alter_topic(topic, configs={"stele.value.schema.validation": "id"})
        client.produce(topic, None, key=key)
        with pytest.raises(InvalidRecordError, match="its value names no schema"):
            client.produce(topic, b"anything", key=key)


def test_a_header_may_have_the_guid(broker: BrokerProcess, http: httpx.Client, topic: str) -> None:
    make_topic(http, topic)
    register(broker.registry_url, f"{topic}-value")
    with SchemaRegistry(broker.registry_url) as registry:
        guid = UUID(registry.version(f"{topic}-value").guid)
    header = (framing.VALUE_HEADER, framing.join_header(guid))
    with Client(broker.binary_url) as client:
        client.produce_many(topic, [NewRecord(TEA, headers=[header])])
        for value, headers, reason in (
            (CUT, [header], "at /item"),
            (TEA, [], "names no schema"),
            (TEA, [(framing.VALUE_HEADER, framing.join_header(UUID(int=1)))], "is not registered"),
            (TEA, [header, header], "is null, or there twice"),
            (TEA, [(framing.VALUE_HEADER, b"\1\2")], "names no schema"),
        ):
            with pytest.raises(ProduceError, match=reason):
                client.produce_many(topic, [NewRecord(value, headers=headers)])


@pytest.mark.parametrize(
    ("strategy", "subject"),
    [
        ("record", "{topic}.Order"),
        ("topic-record", "{topic}-{topic}.Order"),
        ("subject:fixed-{topic}", "fixed-{topic}"),
        ("subject::.eu:{topic}", ":.eu:{topic}"),
    ],
)
def test_the_strategy_names_the_subject(
    broker: BrokerProcess, http: httpx.Client, topic: str, strategy: str, subject: str
) -> None:
    topic = topic.replace("-", "_")
    schema = json.dumps(json.loads(ORDER) | {"namespace": topic})
    make_topic(http, topic, stele_value_subject_name_strategy=strategy.format(topic=topic))
    wrong = register(broker.registry_url, f"{topic}-value", json.dumps(json.loads(schema) | {"doc": "else"}))
    right = register(broker.registry_url, subject.format(topic=topic), schema)
    with Client(broker.binary_url) as client:
        client.produce(topic, framed(right))
        with pytest.raises(InvalidRecordError, match=r"is not registered|does not match schema"):
            client.produce(topic, framed(wrong, CUT))
        with pytest.raises(InvalidRecordError, match="at /item"):
            client.produce(topic, framed(right, CUT))


JSON_SCHEMA = json.dumps(
    {"type": "object", "title": "Order", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
)
PROTOBUF = 'syntax = "proto3"; package shop; message A { string name = 1; } message B { int32 id = 1; }'


def test_json_schema(broker: BrokerProcess, http: httpx.Client, topic: str) -> None:
    make_topic(http, topic)
    schema = register(broker.registry_url, f"{topic}-value", JSON_SCHEMA, "JSON")
    with Client(broker.binary_url) as client:
        client.produce(topic, framed(schema, b'{"id": 1}'))
        with pytest.raises(InvalidRecordError, match="at /id"):
            client.produce(topic, framed(schema, b'{"id": "1"}'))
        with pytest.raises(InvalidRecordError, match="it is not JSON"):
            client.produce(topic, framed(schema, b"{"))
        # Large ones are checked in another process.
        for last, is_taken in ((b"1", True), (b'"1"', False)):
            value = framed(schema, b'{"items": [%s], "id": %s}' % (b",".join([b"1"] * 100_000), last))
            if is_taken:
                client.produce(topic, value)
            else:
                with pytest.raises(InvalidRecordError, match="at /id"):
                    client.produce(topic, value)


@pytest.mark.parametrize("strategy", ["topic", "record"])
def test_protobuf_with_the_indexes_of_its_messages(
    broker: BrokerProcess, http: httpx.Client, topic: str, strategy: str
) -> None:
    pytest.importorskip("grpc_tools")
    package = topic.replace("-", "_")
    make_topic(http, topic, stele_value_subject_name_strategy=strategy)
    subject = f"{topic}-value" if strategy == "topic" else f"{package}.B"
    text = PROTOBUF.replace("shop", package)
    schema = register(broker.registry_url, subject, text, "PROTOBUF")
    second = framing.join_indexes((1,), bytes((8, 5)))
    with Client(broker.binary_url) as client:
        client.produce(topic, framed(schema, second))
        with pytest.raises(InvalidRecordError, match="no message with the indexes"):
            client.produce(topic, framed(schema, framing.join_indexes((7,), b"")))
        with pytest.raises(InvalidRecordError, match="does not match schema"):
            client.produce(topic, framed(schema, framing.join_indexes((1,), b"\x08")))
        first = framed(schema, b"\0\x0a\1a")
        if strategy == "topic":
            client.produce(topic, first)
        else:
            with pytest.raises(InvalidRecordError, match=rf"under subject '{package}.A'"):
                client.produce(topic, first)


def test_a_deleted_version_is_no_longer_accepted(
    broker: BrokerProcess, http: httpx.Client, topic: str
) -> None:
    make_topic(http, topic)
    subject = f"{broker.registry_url}/subjects/{topic}-value"
    schema = register(broker.registry_url, f"{topic}-value", json.dumps(json.loads(ORDER) | {"doc": topic}))
    with Client(broker.binary_url) as client:

        def is_refused(reason: str) -> bool:
            try:
                client.produce(topic, framed(schema))
            except InvalidRecordError as error:
                return reason in str(error)
            # Of several brokers, another one has deleted it.
            assert BROKERS > 1
            return False

        client.produce(topic, framed(schema))
        assert httpx.delete(subject).is_success
        eventually(lambda: is_refused("is not registered under subject"), "the deletion is known")
        assert httpx.delete(f"{subject}?permanent=true").is_success
        with pytest.raises(InvalidRecordError, match=f"schema {schema} of its value is not registered"):
            client.produce(topic, framed(schema))
        assert (
            register(broker.registry_url, f"{topic}-value", json.dumps(json.loads(ORDER) | {"doc": topic}))
            == schema
        )
        client.produce(topic, framed(schema))


def test_turned_on_it_is_for_new_records_and_turned_off_for_none(
    broker: BrokerProcess, http: httpx.Client, topic: str
) -> None:
    with Client(broker.binary_url) as client:
        client.create_topic(topic)
        client.produce(topic, b"before")
        client.alter_topic(topic, configs={"stele.value.schema.validation": "content"})
        with pytest.raises(InvalidRecordError):
            client.produce(topic, b"meanwhile")
        assert [record.value for record in client.fetch(topic, 0, 0).records] == [b"before"]
        client.alter_topic(topic, configs={"stele.value.schema.validation": None})
        client.produce(topic, b"after")


def test_the_records_that_broke_it_are_counted(http: httpx.Client, peer: KafkaPeer, topic: str) -> None:
    make_topic(http, topic)
    before = refusals(http)
    peer.call(produce(topic, batch_of([b"x", b"y"]), acks=-1), 12)
    # Of several brokers, another one counts them.
    assert refusals(http) == before + (2 if BROKERS == 1 else 0)


def refusals(http: httpx.Client) -> int:
    name = "stele_contract_refused_records_total "
    (line,) = (line for line in http.get("/metrics").text.splitlines() if line.startswith(name))
    return round(float(line.removeprefix(name)))


# ── configurations ──


@pytest.mark.parametrize(
    ("alias", "value", "name", "ours"),
    [
        ("confluent.value.schema.validation", "true", "stele.value.schema.validation", "id"),
        ("confluent.key.schema.validation", "false", "stele.key.schema.validation", "none"),
        ("redpanda.value.schema.id.validation", "true", "stele.value.schema.validation", "id"),
        (
            "confluent.value.subject.name.strategy",
            "io.confluent.kafka.serializers.subject.RecordNameStrategy",
            "stele.value.subject.name.strategy",
            "record",
        ),
        (
            "redpanda.value.subject.name.strategy",
            "TopicRecordNameStrategy",
            "stele.value.subject.name.strategy",
            "topic-record",
        ),
    ],
)
def test_names_of_other_products_stand_for_ours(
    broker: BrokerProcess, topic: str, alias: str, value: str, name: str, ours: str
) -> None:
    with Client(broker.http_url) as client:
        client.create_topic(topic, configs={alias: value})
        assert client.describe_topic(topic).configs[name] == ours
        client.alter_topic(topic, configs={alias: None})
        assert client.describe_topic(topic).configs[name] in ("none", "topic")
        client.alter_topic(topic, configs={alias: value})
        assert client.describe_topic(topic).configs[name] == ours


@pytest.mark.parametrize(
    ("configs", "message"),
    [
        ({"stele.value.schema.validation": "yes"}, "String must be one of: none, id, content"),
        ({"stele.value.subject.name.strategy": "subject:"}, "topic, record, topic-record, subject:NAME"),
        ({"confluent.value.schema.validation": "id"}, "String must be one of: true, false"),
        ({"redpanda.key.subject.name.strategy": "mine"}, "String must be one of: TopicNameStrategy"),
        (
            {"confluent.value.schema.validation": "true", "stele.value.schema.validation": "content"},
            "it stands for stele.value.schema.validation=id, which is content as well",
        ),
        (
            {"stele.value.schema.validation": "id", "stele.storage": "memory"},
            "the records of a topic in memory",
        ),
    ],
)
def test_what_cannot_be_is_refused(
    http: httpx.Client, topic: str, configs: dict[str, str], message: str
) -> None:
    answer = http.put(f"/v1/topics/{topic}", json={"configs": configs})
    problem: dict[str, Any] = answer.json()
    assert (answer.status_code, problem["type"]) == (400, "/problems/invalid-config")
    assert message in problem["detail"]


def test_the_topic_of_the_schemas_has_none(broker: BrokerProcess, http: httpx.Client, topic: str) -> None:
    register(broker.registry_url, f"{topic}-value")
    configs = {"stele.value.schema.validation": "id"}
    problem = http.patch("/v1/topics/_schemas", json={"configs": configs}).json()
    assert problem["type"] == "/problems/invalid-config"
    assert "has the schemas themselves" in problem["detail"]
    assert not http.patch("/v1/topics/__consumer_offsets", json={"configs": configs}).is_success


# ── brokers ──


def test_it_is_kept_with_the_listener_of_the_registry_turned_off(tmp_path: Path) -> None:
    with run_broker(tmp_path) as broker:
        schema = register(broker.registry_url, "orders-value")
    with (
        run_broker(tmp_path, environment={"STELE_REGISTRY_ENABLE": "false"}) as broker,
        httpx.Client(base_url=broker.http_url) as http,
        Client(broker.binary_url) as client,
    ):
        make_topic(http, "orders")
        client.produce("orders", framed(schema))
        with pytest.raises(InvalidRecordError, match="at /item"):
            client.produce("orders", framed(schema, CUT))


def test_a_schema_that_a_mirror_appends_is_known_at_once(
    broker: BrokerProcess, http: httpx.Client, peer: KafkaPeer, topic: str
) -> None:
    """No request to the registry has a part in it: the record is appended to the topic as another client would."""
    make_topic(http, topic)
    schema = register(
        broker.registry_url,
        f"{topic}-first",
        f'{{"type": "fixed", "name": "F", "size": 5, "doc": "{topic}"}}',
    )
    subject, schema_id = f"{topic}-value", schema + 5000
    key = {"keytype": "SCHEMA", "subject": subject, "version": 1, "magic": 1}
    value = {"subject": subject, "version": 1, "id": schema_id, "schema": ORDER, "deleted": False}
    with Client(broker.binary_url) as client:
        with pytest.raises(InvalidRecordError, match="is not registered"):
            client.produce(topic, framed(schema_id))
        client.produce("_schemas", json.dumps(value).encode(), key=json.dumps(key).encode())
        client.produce(topic, framed(schema_id))


def test_nothing_that_breaks_it_is_there_after_a_kill(tmp_path: Path) -> None:
    with run_broker(tmp_path) as broker:
        schema = register(broker.registry_url, "orders-value")
        with httpx.Client(base_url=broker.http_url) as http:
            make_topic(http, "orders")
        good, bad = framed(schema), framed(schema, CUT)
        with Client(broker.binary_url) as client:
            client.produce_many("orders", [NewRecord(good)] * 50)
            with pytest.raises(ProduceError, match="record 1 was refused"):
                client.produce_many("orders", [NewRecord(good), NewRecord(bad)])
        broker.kill()
        broker.start()
        with Client(broker.binary_url) as client:
            client.produce("orders", good)
            with pytest.raises(InvalidRecordError):
                client.produce("orders", bad)
            assert {record.value for record in client.fetch("orders", 0, 0).records} == {good}


def test_a_topic_without_one_takes_what_it_always_took(peer: KafkaPeer, topic: str) -> None:
    create_topic(peer, topic)
    put(peer, topic, b"tea", framed(2**31 - 1), b"")


# ── what has gone wrong elsewhere ──


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec is not Compression.NONE])
@pytest.mark.parametrize("configs", [{}, {"compression_type": "zstd"}], ids=["kept", "recompressed"])
def test_batches_of_all_codecs_are_looked_into(
    broker: BrokerProcess,
    http: httpx.Client,
    peer: KafkaPeer,
    topic: str,
    codec: Compression,
    configs: dict[str, str],
) -> None:
    make_topic(http, topic, **configs)
    good = framed(register(broker.registry_url, f"{topic}-value"))
    done = only_partition(peer.call(produce(topic, batch_of([good], compression=codec), acks=-1), 12))
    assert done.error_code == ErrorCode.NONE
    done = only_partition(peer.call(produce(topic, batch_of([good, b"x"], compression=codec), acks=-1), 12))
    assert [error.batch_index for error in done.record_errors] == [1]
    assert values(http, topic) == 1


@pytest.mark.parametrize("schema_id", [0, 2**31 - 1, 2**31, 2**32 - 1])
def test_ids_that_no_schema_can_have_are_not_registered(
    http: httpx.Client, senders: Senders, topic: str, schema_id: int
) -> None:
    make_topic(http, topic, "id")
    refused = senders.by_name["binary batch"](topic, [framed(schema_id)])
    assert refused is not None
    assert f"schema {schema_id} of its value is not registered" in refused.reason


def test_nothing_may_follow_a_value_not_even_another_frame(
    broker: BrokerProcess, http: httpx.Client, senders: Senders, topic: str
) -> None:
    """To a reader that stops at the end of the value, a value that is framed twice is an empty string."""
    make_topic(http, topic)
    schema = register(broker.registry_url, f"{topic}-value", '"string"')
    send = senders.by_name["binary batch"]
    assert send(topic, [framed(schema, b"\0")]) is None
    refused = send(topic, [framed(schema, framed(schema, b"\6tea"))])
    assert refused is not None
    assert "8 bytes follow the value" in refused.reason


def test_empty_is_not_null(broker: BrokerProcess, http: httpx.Client, topic: str) -> None:
    make_topic(http, topic, stele_key_schema_validation="content")
    with Client(broker.binary_url) as client:
        for value, key, part in ((b"", None, "value"), (None, b"", "key")):
            with pytest.raises(InvalidRecordError, match=f"its {part} names no schema: 0 bytes are fewer"):
                client.produce(topic, value, key=key)


def test_topics_of_one_request_are_refused_for_themselves(
    broker: BrokerProcess, http: httpx.Client, peer: KafkaPeer, topic: str
) -> None:
    names = [f"{topic}-{letter}" for letter in "abc"]
    for name in names[:2]:
        make_topic(http, name)
    create_topic(peer, names[2])
    schema = register(broker.registry_url, f"{names[1]}-value")
    requests = [produce(name, batch_of([framed(schema)]), acks=-1) for name in names]
    merged = replace(requests[0], topic_data=[request.topic_data[0] for request in requests])
    answer = peer.call(merged, 12)
    codes = {each.name: each.partition_responses[0].error_code for each in answer.responses}
    assert codes == dict(zip(names, (ErrorCode.INVALID_RECORD, ErrorCode.NONE, ErrorCode.NONE), strict=True))


def test_an_idempotent_producer_goes_on_after_a_refusal(
    broker: BrokerProcess, http: httpx.Client, topic: str
) -> None:
    """Its sequence numbers leave out the refused batch."""
    make_topic(http, topic)
    good = framed(register(broker.registry_url, f"{topic}-value"))
    config: dict[str, Any] = {"bootstrap.servers": broker.kafka_bootstrap, "enable.idempotence": True}
    producer = Producer(config)
    codes: list[int] = []
    for value in (good, b"bad", good, good):
        producer.produce(
            topic,
            value,
            partition=0,
            on_delivery=lambda error, _: codes.append(0 if error is None else error.code()),
        )
        assert producer.flush(60) == 0
    assert codes == [0, ErrorCode.INVALID_RECORD, 0, 0]
    assert values(http, topic) == 3


def test_values_of_the_serializers_pass_when_validation_is_turned_on(
    broker: BrokerProcess, http: httpx.Client, topic: str
) -> None:
    """They were registered long before, and are known to the registry alone."""
    with SchemaRegistryClient({"url": broker.registry_url}) as client:
        serialize = AvroSerializer(client, ORDER)
        producer = Producer({"bootstrap.servers": broker.kafka_bootstrap})
        for configs in (
            {},
            {"confluent.value.schema.validation": "true"},
            {"stele.value.schema.validation": "content"},
        ):
            if configs:
                assert http.patch(f"/v1/topics/{topic}", json={"configs": configs}).is_success
            value = serialize({"id": 1, "item": "tea"}, SerializationContext(topic, MessageField.VALUE))
            producer.produce(topic, value)
            assert producer.flush(60) == 0
    assert values(http, topic) == 3


def test_a_schema_is_used_though_what_it_refers_to_was_deleted(
    broker: BrokerProcess, http: httpx.Client, senders: Senders, topic: str
) -> None:
    """Soft-deleted, and registered again, which would remove the older version if nothing referred to it."""
    make_topic(http, topic)
    url, subject, referred = broker.registry_url, f"{topic}-value", f"{topic}-item"
    item = json.dumps({"type": "record", "name": "Item", "fields": [{"name": "name", "type": "string"}]})
    register(url, referred, item)
    body = {
        "schema": json.dumps({"type": "record", "name": "O", "fields": [{"name": "item", "type": "Item"}]}),
        "references": [{"name": "Item", "subject": referred, "version": 1}],
    }
    answer = httpx.post(f"{url}/subjects/{subject}/versions", json=body)
    assert answer.is_success, answer.text
    send = senders.by_name["binary batch"]
    assert send(topic, [framed(answer.json()["id"], b"\6tea")]) is None
    httpx.delete(f"{url}/subjects/{referred}")
    register(url, referred, item)
    assert send(topic, [framed(answer.json()["id"], b"\6tea")]) is None
    refused = send(topic, [framed(answer.json()["id"], b"\x10tea")])
    assert refused is not None
    assert "at /item/name" in refused.reason


def test_a_message_within_messages_has_its_full_name(
    broker: BrokerProcess, http: httpx.Client, senders: Senders, topic: str
) -> None:
    pytest.importorskip("grpc_tools")
    package = topic.replace("-", "_")
    make_topic(http, topic, stele_value_subject_name_strategy="topic-record")
    text = (
        f'syntax = "proto3"; package {package}; message A {{ message B {{ message C {{ int32 id = 1; }} }} }}'
    )
    schema = register(broker.registry_url, f"{topic}-{package}.A.B.C", text, "PROTOBUF")
    send = senders.by_name["binary batch"]
    assert send(topic, [framed(schema, framing.join_indexes((0, 0, 0), bytes((8, 5))))]) is None
    refused = send(topic, [framed(schema, framing.join_indexes((0, 0), b""))])
    assert refused is not None
    assert f"under subject '{topic}-{package}.A.B'" in refused.reason
