"""The registry over a broker in this process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from stele.schemas.definitions import Reference
from stele.wire import record_batch as rb

from app.broker.broker import Broker
from app.broker.producing.produce import Acks
from app.broker.reading.fetch import PartitionFetch, end_of, records_in_turns
from app.composition import open_broker
from app.registry import errors
from app.registry.contents import Content
from app.registry.definitions import Compatibility, ContextId, NewSchema, RegisteredSchema, SubjectVersion
from app.registry.service import SchemaRegistry
from app.registry.store import TOPIC
from app.registry.topic_format import SCHEMA, Key, SchemaValue, schema_record
from app.settings import Settings
from tests.support.waiting import Pauses


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    opened = await open_broker(Settings(data_dir=tmp_path))
    yield opened
    await opened.close()


@pytest.fixture
async def registry(broker: Broker) -> AsyncIterator[SchemaRegistry]:
    registry = SchemaRegistry(broker)
    await registry.start()
    yield registry
    await registry.close()


def record_schema(name: str, *fields: str) -> str:
    """An Avro record whose fields have defaults: any two of one name are compatible."""
    members = [{"name": field, "type": "int", "default": 0} for field in fields]
    return json.dumps({"type": "record", "name": name, "fields": members})


def new(text: str, *references: Reference, schema_type: str = "AVRO") -> NewSchema:
    return NewSchema(text=text, schema_type=schema_type, references=references)


async def produce(broker: Broker, *rows: tuple[bytes | None, bytes | None]) -> None:
    """Append records to the topic as any client does."""
    batch = rb.build_rows([(1, key, value, []) for key, value in rows])
    await broker.produce(TOPIC, 0, batch, acks=Acks.LEADER).wait(10_000)


STRING = '"string"'


# ── the topic ──


async def test_the_topic_is_made_with_the_first_schema(broker: Broker, registry: SchemaRegistry) -> None:
    assert await registry.subjects() == []
    with pytest.raises(errors.SubjectNotFound):
        await registry.versions("a")
    assert broker.topic_by_name(TOPIC) is None
    registered = await registry.register("a", new(STRING))
    assert (registered.id, registered.version, registered.text) == (1, 1, STRING)
    topic = broker.topic(TOPIC)
    assert (topic.partitions, topic.effective_configs["cleanup.policy"]) == (1, "compact")


async def test_a_topic_that_would_lose_schemas_is_refused(broker: Broker, registry: SchemaRegistry) -> None:
    # As a client makes it that produces to it or asks for it.
    await broker.create_topic(TOPIC, partitions=1)
    for call in (registry.subjects(), registry.register("a", new(STRING))):
        with pytest.raises(errors.StoreFailed, match=r"cleanup\.policy=delete.*set it to compact"):
            await call
    await broker.alter_topic(TOPIC, configs={"cleanup.policy": "compact"})
    assert (await registry.register("a", new(STRING))).id == 1
    await broker.alter_topic(TOPIC, partitions=2)
    with pytest.raises(errors.StoreFailed, match="2 partitions"):
        await registry.subjects()


async def test_a_new_topic_is_a_new_registry(broker: Broker, registry: SchemaRegistry) -> None:
    await registry.register("a", new(STRING))
    await broker.delete_topic(TOPIC)
    assert await registry.subjects() == []
    await registry.register("b", new('"int"'))
    assert await registry.subjects() == ["b"]
    assert (await registry.schema_by_id(1)).text == '"int"'


async def test_records_before_the_start_of_the_log_say_nothing(
    broker: Broker, registry: SchemaRegistry, tmp_path: Path
) -> None:
    for name in ("a", "b", "c"):
        await registry.register(name, new(record_schema(name)))
    await broker.delete_records(TOPIC, 0, 2)
    assert await SchemaRegistry(broker).subjects() == ["c"]
    # One that has read them remembers what they said.
    assert await registry.subjects() == ["a", "b", "c"]


async def test_what_was_registered_is_there_after_a_restart(broker: Broker, registry: SchemaRegistry) -> None:
    first = await registry.register("a", new(record_schema("r", "x")))
    await registry.register("a", new(record_schema("r", "x", "y")))
    await registry.set_config("a", {"compatibilityLevel": "FULL"})
    again = SchemaRegistry(broker)
    assert await again.versions("a") == [1, 2]
    assert await again.schema_by_id(1) == await registry.schema_by_id(1)
    assert (await again.version("a", 1)).guid == first.guid
    assert await again.config("a") == {"compatibilityLevel": "FULL"}
    assert (await again.register("a", new(record_schema("r", "x")))).id == 1


async def test_records_of_other_writers_count(broker: Broker, registry: SchemaRegistry) -> None:
    await registry.register("a", new(STRING))
    value = SchemaValue(7, Content(schema_type="AVRO", text='{"type": "int"}'), False)
    record = schema_record("b", 1, value)
    await produce(broker, (record.key, record.value), (b"nope", b"x"), (b"{}", None))
    # Found by id at once, and by what it is equal to.
    assert (await registry.schema_by_id(7)).text == '{"type": "int"}'
    assert (await registry.register("b", new('"int"'))).id == 7
    assert (await registry.register("c", new('"long"'))).id == 8


async def test_a_schema_is_found_with_its_references_written_out(registry: SchemaRegistry) -> None:
    """confluentinc/schema-registry 1557: a serializer of generated classes sends no references."""
    await registry.register("inner", new(record_schema("Inner", "a")))
    outer = {"type": "record", "name": "Outer", "fields": [{"name": "i", "type": "Inner"}]}
    reference = Reference("Inner", "inner", 1)
    registered = await registry.register("outer", new(json.dumps(outer), reference))
    outer["fields"] = [{"name": "i", "type": json.loads(record_schema("Inner", "a"))}]
    for normalize in (False, True):
        found = await registry.look_up("outer", new(json.dumps(outer)), normalize=normalize)
        assert (found.id, found.references) == (registered.id, (reference,))
    outer["fields"] = [{"name": "i", "type": json.loads(record_schema("Inner", "b"))}]
    with pytest.raises(errors.SchemaNotFound):
        await registry.look_up("outer", new(json.dumps(outer)))


# ── many at once ──


async def test_many_register_the_same_and_different_schemas(broker: Broker) -> None:
    registries = [SchemaRegistry(broker) for _ in range(4)]
    texts = [record_schema(f"r{number % 20}", "x") for number in range(160)]

    async def register(number: int, text: str) -> tuple[str, int]:
        subject = f"s{number % 5}"
        await registries[0].set_config(subject, {"compatibilityLevel": "NONE"})
        registered = await registries[number % 4].register(subject, new(text))
        return text, registered.id

    ids: dict[str, int] = {}
    for text, schema_id in await asyncio.gather(*(register(*item) for item in enumerate(texts))):
        assert ids.setdefault(text, schema_id) == schema_id
    assert sorted(ids.values()) == list(range(1, 21))
    for subject in await registries[1].subjects():
        versions = await registries[2].versions(subject)
        assert versions == list(range(1, len(versions) + 1))


async def test_another_writer_in_between_makes_a_decision_again(
    broker: Broker, registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one takes the id that this one was about to give, at the last moment."""
    await registry.register("a", new(STRING))
    value = SchemaValue(2, Content(schema_type="AVRO", text='"bytes"'), False)
    record = schema_record("b", 1, value)
    produce_really, others = broker.produce, [record]

    def produce_late(*args: object, **options: object) -> object:
        if others:
            late = others.pop()
            produce_really(TOPIC, 0, rb.build_rows([(1, late.key, late.value, [])]), acks=Acks.LEADER)
        return produce_really(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(broker, "produce", produce_late)
    assert (await registry.register("c", new('"long"'))).id == 3
    assert (await registry.register("d", new('"bytes"'))).id == 2


async def test_a_topic_is_folded_in_steps(broker: Broker, registry: SchemaRegistry) -> None:
    await registry.register("a", new(STRING))
    content = Content(schema_type="AVRO", text=record_schema("r", *"abcdefgh"))
    for first in range(0, 2000, 500):
        records = [
            schema_record(f"s{number}", 1, SchemaValue(number + 2, content, False))
            for number in range(first, first + 500)
        ]
        await produce(broker, *((record.key, record.value) for record in records))
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    assert len(await SchemaRegistry(broker).subjects()) == 2001
    counting.cancel()
    assert turns > 2000 / 16


# ── answers ──


@pytest.fixture
async def full(registry: SchemaRegistry) -> SchemaRegistry:
    """Two versions of a, the first soft-deleted; b with the schema of a; c in a context; d refers to b."""
    await registry.register("a", new(record_schema("r", "x")))
    await registry.register("a", new(record_schema("r", "x", "y")))
    await registry.delete_version("a", 1)
    await registry.register("b", new(record_schema("r", "x")))
    await registry.register(":.eu:c", new(STRING))
    await registry.register("d", new(record_schema("d"), Reference("r", "b", 1)))
    return registry


async def test_subjects(full: SchemaRegistry) -> None:
    assert await full.subjects() == [":.eu:c", "a", "b", "d"]
    assert await full.subjects(prefix="") == ["a", "b", "d"]
    assert await full.subjects(prefix=":.eu:") == [":.eu:c"]
    await full.delete_subject("a")
    assert await full.subjects(prefix="") == ["b", "d"]
    assert await full.subjects(prefix="", deleted=True) == ["a", "b", "d"]
    assert await full.subjects(deleted_only=True) == ["a"]


async def test_versions(full: SchemaRegistry) -> None:
    assert await full.versions("a") == [2]
    assert await full.versions("a", deleted=True) == [1, 2]
    assert await full.versions("a", deleted_only=True) == [1]
    assert await full.versions("a", deleted_as_negative=True) == [-1, 2]
    assert (await full.version("a", "latest")).version == 2
    assert (await full.version("a", "1", deleted=True)).is_deleted


async def test_schemas_by_id_and_guid(full: SchemaRegistry) -> None:
    by_id = await full.schema_by_id(1)
    assert (by_id.subject, by_id.version, by_id.is_deleted) == ("b", 1, False)
    assert (await full.schema_by_id(1, subject="a")).subject == "a"
    assert (await full.schema_by_id(1, subject=":.eu:c")).text == STRING
    assert (await full.schema_by_guid(by_id.guid)).id == 1
    assert await full.ids_of_guid(by_id.guid) == [ContextId(".", 1)]
    assert await full.subjects_of_id(1) == ["b"]
    assert await full.subjects_of_id(1, deleted=True) == ["a", "b"]
    assert await full.versions_of_id(1, deleted=True) == [SubjectVersion("a", 1), SubjectVersion("b", 1)]
    assert (await full.max_id(), await full.max_id(":.eu:x"), await full.max_id(":.no:x")) == (3, 1, 0)
    for call in (
        full.schema_by_id(9),
        full.schema_by_id(2, subject=":.eu:c"),
        full.subjects_of_id(9),
        full.schema_by_guid("no"),
        full.schema_by_guid("00000000-0000-0000-0000-000000000000"),
    ):
        with pytest.raises(errors.SchemaNotFound):
            await call


async def test_an_id_of_another_context_is_found_without_a_subject(registry: SchemaRegistry) -> None:
    await registry.register(":.eu:c", new(STRING))
    assert (await registry.schema_by_id(1)).subject == ":.eu:c"


async def test_all_schemas(full: SchemaRegistry) -> None:
    def places(schemas: list[RegisteredSchema]) -> list[tuple[str, int]]:
        return [(schema.subject, schema.version) for schema in schemas]

    assert places(await full.schemas()) == [(":.eu:c", 1), ("a", 2), ("b", 1), ("d", 1)]
    assert places(await full.schemas(prefix="a", deleted=True)) == [("a", 1), ("a", 2)]
    assert places(await full.schemas(prefix="a", deleted=True, latest_only=True)) == [("a", 2)]
    assert places(await full.schemas(offset=1, limit=1)) == [("a", 2)]


async def test_references(full: SchemaRegistry) -> None:
    assert await full.referenced_by("b", "latest") == [3]
    assert (await full.version("d", 1)).references == (Reference("r", "b", 1),)
    with pytest.raises(errors.ReferenceExists):
        await full.delete_subject("b")


async def test_references_with_their_contexts(registry: SchemaRegistry) -> None:
    await registry.register(":.eu:b", new(record_schema("b")))
    await registry.register(":.eu:d", new(record_schema("d"), Reference("b", "b", 1)))
    plain = await registry.version(":.eu:d", 1)
    qualified = await registry.version(":.eu:d", 1, reference_format="qualified")
    assert plain.references == (Reference("b", "b", 1),)
    assert qualified.references == (Reference("b", ":.eu:b", 1),)


async def test_a_schema_uses_what_it_refers_to(registry: SchemaRegistry) -> None:
    await registry.register("address", new(record_schema("Address", "street")))
    text = json.dumps({"type": "record", "name": "Person", "fields": [{"name": "home", "type": "Address"}]})
    with pytest.raises(errors.InvalidSchemaText, match="Invalid schema of type AVRO"):
        await registry.register("person", new(text))
    registered = await registry.register("person", new(text, Reference("address", "address", -1)))
    assert registered.references == (Reference("address", "address", 1),)
    # Through the reference the two are different schemas.
    await registry.register("address", new(record_schema("Address", "street", "town")))
    again = await registry.register("person", new(text, Reference("address", "address", 2)))
    assert again.id != registered.id


async def test_metadata_find_the_newest_version(registry: SchemaRegistry) -> None:
    for number in (1, 2, 3):
        schema = NewSchema(
            text=record_schema("r", *"abc"[:number]), metadata={"properties": {"odd": str(number % 2)}}
        )
        await registry.register("a", schema)
    assert (await registry.latest_with_metadata("a", {"odd": "1"})).version == 3
    assert (await registry.latest_with_metadata("a", {"odd": "0"})).version == 2
    with pytest.raises(errors.SchemaNotFound):
        await registry.latest_with_metadata("a", {"odd": "2"})


async def test_an_alias_leads_to_its_subject(registry: SchemaRegistry) -> None:
    await registry.register("a", new(STRING))
    await registry.set_config("short", {"alias": "a"})
    assert (await registry.version("short", "latest")).subject == "a"
    assert await registry.versions("short") == [1]
    assert (await registry.look_up("short", new(STRING))).subject == "a"
    assert [schema.subject for schema in await registry.schemas(prefix="short", aliases=True)] == ["a"]


async def test_contexts(full: SchemaRegistry) -> None:
    assert await full.contexts() == [".", ".eu"]
    assert await full.contexts(prefix=".e") == [".eu"]
    await full.delete_subject(":.eu:c")
    await full.delete_subject(":.eu:c", permanent=True)
    await full.delete_context(".eu")
    assert await full.contexts() == ["."]


# ── schemas that are refused ──


@pytest.mark.parametrize("text", ["", "  ", "nope", '{"type": "nope"}', "[" * 100_000, '"\\ud800"'])
async def test_texts_that_are_no_schemas(registry: SchemaRegistry, text: str) -> None:
    with pytest.raises(errors.InvalidSchemaText) as error:
        await registry.register("a", new(text))
    assert error.value.error_code == 42201
    assert str(error.value).startswith("Invalid schema of type AVRO: " if text.strip() else "Empty schema")


async def test_unknown_types_are_refused(registry: SchemaRegistry) -> None:
    with pytest.raises(errors.InvalidSchemaText, match="AVRO, JSON, PROTOBUF"):
        await registry.register("a", new(STRING, schema_type="XML"))


async def test_a_schema_that_is_too_large_for_a_record(registry: SchemaRegistry) -> None:
    enum = {"type": "enum", "name": "e", "symbols": [f"s{number:09}" for number in range(70_000)]}
    with pytest.raises(errors.RegistryError) as error:
        await registry.register("a", new(json.dumps(enum)))
    assert error.value.error_code in (42209, 42201)


async def test_looking_up_what_is_no_schema(registry: SchemaRegistry) -> None:
    with pytest.raises(errors.SubjectNotFound):
        await registry.look_up("a", new("nope"))
    await registry.register("a", new(STRING))
    with pytest.raises(errors.InvalidSchemaText) as error:
        await registry.look_up("a", new("nope"))
    assert str(error.value).startswith("Invalid schema of type AVRO: ")


async def test_checks(registry: SchemaRegistry) -> None:
    await registry.register("a", new(STRING))
    assert await registry.check_compatibility("a", new(STRING), version="latest") == Compatibility(True)
    plain = await registry.check_compatibility("a", new('"int"'), version="latest")
    verbose = await registry.check_compatibility("a", new('"int"'), verbose=True)
    assert plain == Compatibility(False)
    assert (verbose.is_compatible, len(verbose.messages)) == (False, 1)
    invalid = await registry.check_compatibility("a", new("nope"), verbose=True)
    assert not invalid.is_compatible
    with pytest.raises(errors.InvalidSchemaText):
        await registry.check_compatibility("a", new("nope"))
    with pytest.raises(errors.VersionNotFound):
        await registry.check_compatibility("a", new(STRING), version=2)
    with pytest.raises(errors.InvalidVersion):
        await registry.check_compatibility("a", new(STRING), version="x")
    assert (await registry.check_compatibility("no", new(STRING), version="latest")).is_compatible


async def test_a_stored_text_that_is_no_schema(broker: Broker, registry: SchemaRegistry) -> None:
    """Another registry has let it in: it is shown, found by its text, and nothing is compatible with it."""
    await registry.register("b", new(STRING))
    record = schema_record("a", 1, SchemaValue(2, Content(schema_type="AVRO", text='{"foo": "bar"}'), False))
    await produce(broker, (record.key, record.value))
    assert (await registry.version("a", 1)).text == '{"foo": "bar"}'
    with pytest.raises(errors.IncompatibleSchema, match="version 1: it is no valid schema"):
        await registry.register("a", new(STRING))
    await registry.set_config("a", {"compatibilityLevel": "NONE"})
    assert (await registry.register("a", new(STRING))).id == 1


async def test_many_versions_are_deleted_for_good(broker: Broker, registry: SchemaRegistry) -> None:
    """More nulls than are appended at once."""
    await registry.register("b", new(STRING))
    content = Content(schema_type="AVRO", text=STRING)
    name = "a" * 200
    for first in range(1, 3000, 500):
        records = [
            schema_record(name, number, SchemaValue(1, content, True)) for number in range(first, first + 500)
        ]
        await produce(broker, *((record.key, record.value) for record in records))
    assert len(await registry.delete_subject(name, permanent=True)) == 3000
    assert await registry.subjects(deleted=True) == ["b"]
    assert await SchemaRegistry(broker).subjects(deleted=True) == ["b"]


async def keys_of(broker: Broker) -> list[bytes]:
    """Return the keys in the topic."""
    keys: list[bytes] = []
    offset, end = 0, broker.log_state(TOPIC, 0).high_watermark
    while offset < end:
        (fetched,) = await broker.fetch(
            [PartitionFetch(topic=TOPIC, partition=0, offset=offset, max_bytes=1 << 20)],
            max_bytes=1 << 20,
            min_bytes=0,
        )
        async for records in records_in_turns(fetched, offset, broker.decoded.reader()):
            keys += [record.key or b"" for record in records]
        offset = end_of(fetched, offset) if fetched.batches else end
    return keys


async def test_no_id_is_given_twice_after_compaction(tmp_path: Path) -> None:
    broker = await open_broker(Settings(data_dir=tmp_path, log_cleaner_backoff_ms=20))
    try:
        registry = SchemaRegistry(broker)
        await registry.register("a", new(record_schema("a")))
        configs = {"segment.bytes": "16384", "min.cleanable.dirty.ratio": "0", "delete.retention.ms": "0"}
        await broker.alter_topic(TOPIC, configs=configs)
        last = await registry.register("b", new(record_schema("b")))
        await registry.delete_subject("b")
        await registry.delete_subject("b", permanent=True)
        # Compaction reads the records only when others have followed, and drops nulls with a later pass.
        text, key = "x" * 8000, Key(SCHEMA, "b", 1).encoded()
        pauses = Pauses()
        while key in await keys_of(broker):
            await registry.set_config("a", {"defaultMetadata": {"properties": {"filler": text}}})
            await asyncio.to_thread(pauses.pause)
        again = SchemaRegistry(broker)
        assert await again.subjects(deleted=True) == ["a"]
        assert (await again.register("c", new(record_schema("c")))).id == last.id + 1
    finally:
        await broker.close()


async def test_schemas_of_all_types_share_a_registry(registry: SchemaRegistry) -> None:
    proto = 'syntax = "proto3"; message Order { int32 id = 1; }'
    json_schema = '{"type": "object", "properties": {"id": {"type": "integer"}}}'
    for number, (text, kind) in enumerate(((STRING, "AVRO"), (json_schema, "JSON"), (proto, "PROTOBUF")), 1):
        registered = await registry.register(kind, new(text, schema_type=kind))
        assert (registered.id, registered.schema_type) == (number, kind)
        assert (await registry.look_up(kind, new(text, schema_type=kind))).id == number
        assert (await registry.register(f"{kind}2", new(registered.text, schema_type=kind))).id == number
        assert (await registry.check_compatibility(kind, new(text, schema_type=kind))).is_compatible
    with pytest.raises(
        errors.IncompatibleSchema, match="it is of type AVRO, and the new schema of type JSON"
    ):
        await registry.register("AVRO", new(json_schema, schema_type="JSON"))
    # As Confluent's Python client writes and reads Protobuf.
    serialized = (await registry.schema_by_id(3, text_format="serialized")).text
    assert (await registry.register("PROTOBUF", new(serialized, schema_type="PROTOBUF"))).version == 1
    assert (await registry.schema_by_id(1, text_format="serialized")).text == STRING


async def test_the_policy_of_a_subject_says_how_json_schemas_are_compared(registry: SchemaRegistry) -> None:
    old, open_new = (
        json.dumps({"type": "object", "properties": {name: {"type": "integer"} for name in names}})
        for names in ("a", "ab")
    )
    await registry.register("a", new(old, schema_type="JSON"))
    for policy, is_compatible in (("STRICT", False), ("lenient", True)):
        await registry.set_config("a", {"compatibilityLevel": "FULL", "compatibilityPolicy": policy})
        answer = await registry.check_compatibility("a", new(open_new, schema_type="JSON"))
        assert answer.is_compatible is is_compatible
    assert (await registry.register("a", new(open_new, schema_type="JSON"))).version == 2


async def test_a_schema_of_avro_is_shown_with_what_it_refers_to(registry: SchemaRegistry) -> None:
    item = '{"type": "record", "name": "shop.Item", "fields": [{"name": "id", "type": "int"}]}'
    order = '{"type":"record","name":"Order","fields":[{"name":"a","type":"shop.Item"},{"name":"b","type":"shop.Item"}]}'
    await registry.register("item", new(item))
    await registry.register("order", new(order, Reference("shop.Item", "item", 1)))
    shown = await registry.version("order", 1, text_format="resolved")
    first, second = json.loads(shown.text)["fields"]
    assert (first["type"]["fields"], second["type"]) == (json.loads(item)["fields"], "shop.Item")
    assert (await registry.register("copy", new(shown.text))).version == 1
    assert (await registry.version("order", 1, text_format="other")).text == order


async def test_a_protobuf_schema_imports_another(registry: SchemaRegistry) -> None:
    item = 'syntax = "proto3"; package shop; message Item { string name = 1; }'
    order = 'syntax = "proto3"; import "item.proto"; message Order { shop.Item item = 1; }'
    await registry.register("item.proto", new(item, schema_type="PROTOBUF"))
    reference = Reference("item.proto", "item.proto", 1)
    registered = await registry.register("order", new(order, reference, schema_type="PROTOBUF"))
    assert registered.references == (reference,)
    with pytest.raises(errors.InvalidSchemaText, match="Invalid schema of type PROTOBUF"):
        await registry.register("order", new(order, schema_type="PROTOBUF"))


async def test_normalized_schemas(broker: Broker, registry: SchemaRegistry) -> None:
    plain = '{"type":"record","name":"a.R","fields":[{"name":"x","type":{"type":"int","name":"i"}}]}'
    other = '{"name":"R","namespace":"a","type":"record","fields":[{"type":"int","name":"x"}]}'
    registered = await registry.register("a", new(plain), normalize=True)
    assert (await registry.register("a", new(other), normalize=True)).version == 1
    for text in (plain, other, registered.text):
        assert (await registry.look_up("a", new(text))).version == 1
        assert (await registry.look_up("a", new(text), normalize=True)).version == 1
    # After a restart, and as the configuration says.
    await registry.set_config("a", {"normalize": True})
    again = SchemaRegistry(broker)
    assert (await again.register("a", new(other))).version == 1
