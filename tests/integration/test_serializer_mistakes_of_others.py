"""Mistakes that serializers and registry clients of others have shipped; each test names the public report."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pydantic
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.serialization import MessageField, SerializationContext
from stele import (
    AsyncSchemaRegistry,
    Client,
    Consumer,
    Producer,
    Reference,
    Schema,
    SchemaRegistry,
    UnknownSchemaError,
)
from stele.broker_process import BrokerProcess, run_broker
from stele.errors import DeserializationError
from stele.schemas.definitions import InvalidValue

from tests.support.confluent_serializers import AvroSerializer
from tests.support.protobuf_messages import message_classes
from tests.support.scripted_registry import scripted_registry


def record(name: str, *fields: str, namespace: str = "") -> str:
    space = f'"namespace":"{namespace}",' if namespace else ""
    return f'{{"type":"record",{space}"name":"{name}","fields":[{",".join(fields)}]}}'


def a_field(name: str, kind: str, default: str = "") -> str:
    return f'{{"name":"{name}","type":{kind}' + (f',"default":{default}}}' if default else "}")


V1 = record("R", a_field("a", '"int"'))
V2 = record("R", a_field("a", '"int"'), a_field("b", '"string"', '"new"'))


@dataclass(frozen=True)
class Place:
    broker: BrokerProcess
    registry: SchemaRegistry


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with run_broker() as broker, SchemaRegistry(broker.registry_url) as registry:
        yield Place(broker, registry)


def test_the_latest_version_is_what_values_are_written_with(place: Place) -> None:
    """confluent-kafka-python #1704: use.latest.version named the latest schema, and wrote with the given one."""
    registry = place.registry
    registry.register("latest-value", Schema(V1))
    latest = registry.register("latest-value", Schema(V2))
    serializer = registry.serializer(V1, "latest", use_latest=True)
    data = serializer({"a": 1})
    assert int.from_bytes(data[1:5], "big") == latest.id
    assert registry.deserializer()(data) == {"a": 1, "b": "new"}
    assert registry.serializer(None, "latest", use_latest=True)({"a": 1}) == data
    # And registers nothing.
    registry.serializer(record("Q", a_field("z", '"int"')), "latest", use_latest=True)
    assert registry.versions("latest-value") == [1, 2]


def test_one_serializer_has_one_subject(place: Place) -> None:
    """confluent-kafka-python #913: a serializer that was used for several topics kept the id of one."""
    registry = place.registry
    first = registry.serializer(V1, "one", key=True)
    second = registry.serializer(V2, "two", key=True)
    assert first.registered.id != second.registered.id
    assert [first({"a": 1})[:5], second({"a": 1, "b": ""})[:5], first({"a": 2})[:5]] == [
        one.to_bytes(5, "big") for one in (first.registered.id, second.registered.id, first.registered.id)
    ]


def test_a_deleted_schema_is_registered_again_after_it_was_known(place: Place) -> None:
    """confluent-kafka-python #1194: the cache of the client had a subject that had been deleted."""
    registry = place.registry
    registry.serializer(V1, "deleted")
    registry.delete_subject("deleted-value")
    with pytest.raises(UnknownSchemaError):
        registry.serializer(V1, "deleted", auto_register=False)
    registry.serializer(V1, "deleted")
    assert len(registry.versions("deleted-value")) == 1


def test_a_tombstone_has_no_schema(place: Place) -> None:
    """confluent-kafka-python #189, confluent-kafka-dotnet #905: a null value was an error, or bytes."""
    with Client(place.broker.binary_url) as client:
        serializer = place.registry.serializer(V1, "tombstones", frame="header")
        with Producer(client, "tombstones", serializer=serializer) as producer:
            producer.send(None, key=b"k")
        deserializer = place.registry.deserializer()
        with Consumer(client, "tombstones", deserializer=deserializer, follow=False) as consumer:
            (read,) = consumer
    assert (read.value, read.headers) == (None, ())


def test_diamonds_and_repeated_names_are_parsed(place: Place) -> None:
    """confluent-kafka-python #2236, #1924: 'redefined named type' for types that two others use."""
    registry, space = place.registry, "diamond"
    registry.register("d.Address", Schema(record("Address", a_field("city", '"string"'), namespace=space)))
    for name in ("Details", "Invoice"):
        text = record(name, a_field("address", '"diamond.Address"'), namespace=space)
        registry.register(
            f"d.{name}", Schema(text, references=(Reference("diamond.Address", "d.Address", 1),))
        )
    order = record(
        "Order", a_field("d", '"diamond.Details"'), a_field("i", '"diamond.Invoice"'), namespace=space
    )
    serializer = registry.serializer(
        Schema(
            order,
            references=(
                Reference("diamond.Details", "d.Details", 1),
                Reference("diamond.Invoice", "d.Invoice", 1),
            ),
        ),
        "diamond",
    )
    value = {"d": {"address": {"city": "Paris"}}, "i": {"address": {"city": "Rome"}}}
    assert registry.deserializer()(serializer(value)) == value
    # In a new client, which has to load all of them.
    with SchemaRegistry(place.broker.registry_url) as other:
        assert other.deserializer()(serializer(value)) == value
    repeated = record("A", a_field("first", record("B")), a_field("second", '"B"'), namespace="u")
    union = f'["null", {repeated}]'
    serializer = registry.serializer(union, "union")
    assert registry.deserializer()(serializer({"first": {}, "second": {}})) == {"first": {}, "second": {}}


A_NUMBER = a_field("n", '"int"')
ALIKE = (record("One", A_NUMBER), record("Two", A_NUMBER))
MORE = record("Three", A_NUMBER, a_field("more", '["null","int"]', "null"))
UNION = record("U", a_field("what", f"[{','.join((*ALIKE, MORE))}]"))


def test_the_branch_of_an_ambiguous_union_is_kept(place: Place) -> None:
    """confluent-kafka-python #656, fastavro #191, #401: the first record that looks alike was written."""
    registry = place.registry
    serializer = registry.serializer(UNION, "ambiguous")
    plain, named = serializer({"what": {"n": 1}}), serializer({"what": ("Two", {"n": 1})})
    assert plain != named
    # A field that the first records do not have decides, and is not dropped.
    third = serializer({"what": {"n": 1, "more": 2}})
    assert registry.deserializer()(third) == {"what": {"n": 1, "more": 2}}
    # The form of JSON says which one it was, and writes it again.
    exact = registry.deserializer(form="json")
    assert exact(named) == {"what": {"Two": {"n": 1}}}
    assert registry.serializer(UNION, "ambiguous", form="json")(exact(named)) == named
    with pytest.raises(InvalidValue, match="/what"):
        serializer({"what": {"n": 1, "less": 2}})
    with SchemaRegistryClient({"url": place.broker.registry_url}) as theirs:
        context = SerializationContext("ambiguous", MessageField.VALUE)
        assert AvroSerializer(theirs, UNION)({"what": ("Two", {"n": 1})}, context) == named


def test_indexes_of_no_message_are_refused(place: Place) -> None:
    """confluent-kafka-python #2271: a negative index read the bytes as another message of the file."""
    classes = message_classes(
        {"m.proto": 'syntax = "proto3"; message A { int32 a = 1; } message B { string b = 1; }'}
    )
    serializer = place.registry.serializer(classes["B"], "indexes")
    data = serializer(classes["B"](b="x"))
    assert data[5:7] == b"\x02\x02"
    deserializer = place.registry.deserializer()
    for indexes in (b"\x02\x01", b"\x02\x10", b"\x01", b"\xff\xff\xff\xff\xff\xff", b"\x04\x02\x00", b""):
        with pytest.raises(InvalidValue):
            deserializer(data[:5] + indexes)
    # Bytes of one message are not taken for another that they could be.
    with pytest.raises(InvalidValue, match="it is a B, and not a A"):
        place.registry.deserializer(classes["A"])(data)


@pytest.mark.parametrize("name", ["a/b.proto", "with space", "a+b", "é", "%2F", "?q#f", "..", "a:b"])
def test_names_of_subjects_are_quoted(place: Place, name: str) -> None:
    """kafka-ui #1995, redpanda console #311, confluent-kafka-dotnet #2163: slashes and spaces in subjects."""
    registered = place.registry.register(name, Schema(V1))
    assert registered.subject == name
    assert name in place.registry.subjects()
    assert place.registry.version(name).id == registered.id
    assert place.registry.set_config(name, compatibility="NONE") == {"compatibility": "NONE"}
    assert place.registry.config_of(name)["compatibilityLevel"] == "NONE"


async def test_tasks_have_serializers_that_need_no_request() -> None:
    """python-schema-registry-client #90: no serializer for asyncio; one that asks in a call blocks the event loop."""
    answers: list[tuple[int, Any]] = [(200, {"id": 7})]
    with scripted_registry(answers) as scripted:
        async with AsyncSchemaRegistry(scripted.url) as registry:
            serializer = await registry.serializer(V1, "t")
            asked = len(scripted.requests)
            assert [serializer({"a": 1}) for _ in range(1000)] == [b"\0\0\0\0\x07\x02"] * 1000
            assert len(scripted.requests) == asked == 1


def test_a_right_to_read_is_enough_for_a_known_schema(place: Place) -> None:
    """python-schema-registry-client #81: programs registered what continuous integration had registered before."""
    made = place.registry.register("read-only-value", Schema(V1))
    place.registry.set_mode("READONLY", "read-only-value")
    assert place.registry.serializer(V1, "read-only", auto_register=False).registered.id == made.id


def test_bytes_that_begin_with_a_zero_are_not_always_framed(place: Place) -> None:
    """apicurio-registry #1479: a first byte of zero was taken for a frame although a header named the schema."""
    schema = record("Z", a_field("a", '["null","int"]'), a_field("b", '"long"'))
    serializer = place.registry.serializer(schema, "zero", frame="header")
    data = serializer({"a": None, "b": 1 << 50})
    assert data[0] == 0
    assert len(data) > 5
    assert place.registry.deserializer()(data, serializer.headers) == {"a": None, "b": 1 << 50}
    # Other headers of the same name for the other part do not count.
    with pytest.raises(InvalidValue):
        place.registry.deserializer(key=True)(data, serializer.headers)


def test_only_the_strategy_of_topics_tells_keys_from_values(place: Place) -> None:
    """kafkian #7: subjects of records ended in -key and -value, too."""
    for key in (False, True):
        assert place.registry.serializer(V1, "s", strategy="record", key=key).registered.subject == "R"
    assert place.registry.serializer(V1, "s", strategy="topic-record", key=True).registered.subject == "s-R"


def test_threads_that_meet_a_schema_at_once_all_get_it(place: Place) -> None:
    """schema-registry #948: caches of a client were filled by several threads at once."""
    serializer = place.registry.serializer(V1, "threads")
    data = serializer({"a": 1})
    with SchemaRegistry(place.broker.registry_url) as registry:
        deserializer = registry.deserializer()
        start, found = threading.Barrier(16), list[Any]()

        def read() -> None:
            start.wait()
            found.extend(deserializer(data)["a"] for _ in range(100))

        threads = [threading.Thread(target=read) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == [1] * 1600


class Payment(pydantic.BaseModel):
    amount: int


def test_a_schema_is_checked_once_and_values_each_time(place: Place) -> None:
    """confluent-kafka-python #1564, #1541: the schema was checked for each value, and had to be given to read."""
    serializer = place.registry.serializer(Payment, "payments")
    parsed = place.registry.parse(serializer.registered.schema)
    assert parsed.decode(serializer(Payment(amount=3))[5:]) == {"amount": 3}
    # Any schema of the topic is found by its id.
    other = place.registry.serializer(Schema('{"type":"string"}', "JSON"), subject="other-payments")
    deserializer = place.registry.deserializer()
    assert [deserializer(serializer(Payment(amount=1))), deserializer(other("a"))] == [{"amount": 1}, "a"]
    with pytest.raises(InvalidValue):
        other(7)


def test_a_value_of_an_unknown_schema_does_not_end_a_consumer(place: Place) -> None:
    """kafka-ui #4520 and others: one record that no schema of the registry describes hid those after it."""
    with Client(place.broker.binary_url) as client:
        serializer = place.registry.serializer(V1, "unknown")
        client.produce("unknown", b"\0\x7f\xff\xff\xff\x02")
        client.produce("unknown", serializer({"a": 1}))
        with Consumer(
            client, "unknown", deserializer=place.registry.deserializer(), follow=False
        ) as consumer:
            with pytest.raises(DeserializationError, match="schema 2147483647 cannot be used"):
                next(consumer)
            assert next(consumer).value == {"a": 1}
