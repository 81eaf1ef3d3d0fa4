"""Contracts over a broker in this process: what is looked for and when, what is kept, and the bounds."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from stele.schemas.framing import join
from stele.wire import record_batch as rb

from app.broker.broker import Broker
from app.broker.producing.produce import Acks
from app.composition import open_broker
from app.errors import BrokenContract, InvalidRequest, StorageUnavailable
from app.registry import contracts, json_process
from app.registry.definitions import NewSchema
from app.registry.service import SchemaRegistry
from app.registry.store import TOPIC
from app.settings import Settings
from tests.support.batches import batch_of


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    opened = await open_broker(Settings(data_dir=tmp_path))
    for topic in ("a", "b"):
        await opened.create_topic(topic, partitions=1, configs={"stele.value.schema.validation": "content"})
    yield opened
    await opened.close()


@pytest.fixture
async def registry(broker: Broker) -> AsyncIterator[SchemaRegistry]:
    registry = SchemaRegistry(broker)
    broker.set_contracts(registry.contracts)
    yield registry
    await registry.close()


@pytest.fixture
async def elsewhere(broker: Broker) -> AsyncIterator[SchemaRegistry]:
    """The registry of another broker: it writes to the same topic, and ours does not know when."""
    registry = SchemaRegistry(broker)
    yield registry
    await registry.close()


def enum(name: str) -> NewSchema:
    """A schema whose only value is the byte 0."""
    return NewSchema(text=json.dumps({"type": "enum", "name": name, "symbols": ["X"]}))


async def register(registry: SchemaRegistry, subject: str, name: str = "E") -> int:
    return (await registry.register(subject, enum(name), force=True)).id


async def produce(broker: Broker, topic: str, *batches: list[bytes]) -> int:
    """Append batches of values with one call, and return their first offset."""
    joined = bytearray().join(batch_of(values, timestamp_ms=broker.now_ms()) for values in batches)
    return (await broker.produce(topic, 0, joined, acks=Acks.LEADER).wait(10_000)).base_offset


def value(schema_id: int) -> bytes:
    return join(schema_id, b"\0")


async def test_a_schema_is_known_until_the_topic_of_the_schemas_changes(
    broker: Broker, registry: SchemaRegistry
) -> None:
    known = value(await register(registry, "a-value"))
    await produce(broker, "a", [known])
    (before,) = registry.contracts.known.values()
    await produce(broker, "a", [known])
    assert list(registry.contracts.known.values()) == [before]
    await register(registry, "else")
    await produce(broker, "a", [known])
    (after,) = registry.contracts.known.values()
    assert after is not before


async def test_what_another_broker_registers_is_known_at_once(
    broker: Broker, registry: SchemaRegistry, elsewhere: SchemaRegistry
) -> None:
    with pytest.raises(BrokenContract, match="schema 1 of its value is not registered"):
        await produce(broker, "a", [value(1)])
    schema = await register(elsewhere, "a-value")
    await produce(broker, "a", [value(schema)])
    # The same schema under another subject; that it is known here is no reason to refuse it.
    with pytest.raises(BrokenContract, match="is not registered under subject 'b-value'"):
        await produce(broker, "b", [value(schema)])
    assert await register(elsewhere, "b-value") == schema
    await produce(broker, "b", [value(schema)])


@pytest.mark.parametrize(("fresh_s", "is_noticed"), [(0.0, True), (1e9, False)])
async def test_what_another_broker_deletes_is_noticed_with_the_next_look(
    broker: Broker,
    registry: SchemaRegistry,
    elsewhere: SchemaRegistry,
    monkeypatch: pytest.MonkeyPatch,
    fresh_s: float,
    is_noticed: bool,
) -> None:
    schema = await register(registry, "a-value")
    await produce(broker, "a", [value(schema)])
    await elsewhere.delete_subject("a-value")
    monkeypatch.setattr(contracts, "_FRESH_S", fresh_s)
    if not is_noticed:
        await produce(broker, "a", [value(schema)])
        return
    with pytest.raises(BrokenContract, match="is not registered under subject"):
        await produce(broker, "a", [value(schema)])


async def test_batches_of_one_call_are_looked_up_together(broker: Broker, registry: SchemaRegistry) -> None:
    await broker.alter_topic("a", configs={"stele.value.subject.name.strategy": "record"})
    ids = [await register(registry, name, name) for name in ("A", "B", "C", "D")]
    first, second, third, fourth = map(value, ids)
    assert await produce(broker, "a", [first, second], [third], [fourth, first]) == 0
    assert len(registry.contracts.known) == 4
    # An index is that within its batch.
    with pytest.raises(BrokenContract) as refused:
        await produce(broker, "a", [first, second], [third, value(99)])
    assert refused.value.index == 1
    assert broker.log_state("a", 0).log_end_offset == 5


async def test_without_its_topic_only_known_schemas_pass(
    broker: Broker, registry: SchemaRegistry, elsewhere: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = value(await register(registry, "a-value"))
    await produce(broker, "a", [known])
    other = value(await register(elsewhere, "a-value", "F"))
    await broker.alter_topic(TOPIC, configs={"cleanup.policy": "delete"})
    monkeypatch.setattr(contracts, "_FRESH_S", 0.0)
    await produce(broker, "a", [known])
    with pytest.raises(StorageUnavailable, match=r"cleanup\.policy=delete"):
        await produce(broker, "a", [other])
    await broker.alter_topic(TOPIC, configs={"cleanup.policy": "compact"})
    await produce(broker, "a", [other])


async def test_a_batch_names_a_bounded_number_of_schemas(
    broker: Broker, registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contracts, "_SCHEMAS_MAX", 3)
    await broker.alter_topic("a", configs={"stele.value.subject.name.strategy": "record"})
    names = ("A", "B", "C", "D")
    values = [value(await register(registry, name, name)) for name in names]
    await produce(broker, "a", values[:3])
    with pytest.raises(BrokenContract, match="record 3 was refused: its batch names more than 3 schemas"):
        await produce(broker, "a", values)
    # As many are kept, the newest.
    await produce(broker, "a", values[3:])
    assert len(registry.contracts.known) == 3
    await produce(broker, "a", values[:1])


async def test_the_schemas_of_a_batch_have_a_bounded_size(
    broker: Broker, registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.alter_topic("a", configs={"stele.value.subject.name.strategy": "record"})
    first = value(await register(registry, "A", "A"))
    second = value(await register(registry, "B", "B"))
    monkeypatch.setattr(contracts, "_CHARACTERS_MAX", len(enum("A").text) + 10)
    with pytest.raises(BrokenContract, match="its schemas have more than"):
        await produce(broker, "a", [first, second])
    await produce(broker, "a", [first])
    await produce(broker, "a", [second])
    assert len(registry.contracts.known) == 1


async def test_a_schema_that_is_none_is_a_reason_to_refuse(broker: Broker, registry: SchemaRegistry) -> None:
    """Another registry has let it in."""
    await register(registry, "else")
    key = {"keytype": "SCHEMA", "subject": "a-value", "version": 1, "magic": 1}
    document = {"subject": "a-value", "version": 1, "id": 7, "schema": "{", "deleted": False}
    row: rb.Row = (broker.now_ms(), json.dumps(key).encode(), json.dumps(document).encode(), [])
    await broker.produce(TOPIC, 0, rb.build_rows([row]), acks=Acks.LEADER).wait(10_000)
    with pytest.raises(BrokenContract, match="schema 7 of its value cannot be used: "):
        await produce(broker, "a", [value(7)])
    await broker.alter_topic("a", configs={"stele.value.schema.validation": "id"})
    await produce(broker, "a", [value(7)])


async def test_refusals_are_counted(broker: Broker, registry: SchemaRegistry) -> None:
    with pytest.raises(BrokenContract):
        await produce(broker, "a", [b"x", b"y"])
    assert broker.counts.contract_refusals == 2


async def test_without_a_registry_such_a_topic_takes_nothing(broker: Broker) -> None:
    with pytest.raises(InvalidRequest, match="has no schemas"):
        await produce(broker, "a", [value(1)])


# ── large values of JSON Schema ──


NUMBERS = json.dumps({"items": {"type": "integer"}})


def numbers(last: str = "1", count: int = 100_000) -> bytes:
    return b"[%s]" % b",".join([b"1"] * count + [last.encode()])


async def test_large_values_of_json_schema_are_checked_in_a_process_of_their_own(
    broker: Broker, registry: SchemaRegistry
) -> None:
    schema = (await registry.register("a-value", NewSchema(text=NUMBERS, schema_type="JSON"))).id
    await produce(broker, "a", [join(schema, numbers(count=10))])
    assert registry.contracts.process.pid is None
    await produce(broker, "a", [join(schema, numbers())])
    started = registry.contracts.process.pid
    assert started is not None
    for bad in (numbers("true"), numbers()[:-1]):
        with pytest.raises(BrokenContract, match="does not match schema"):
            await produce(broker, "a", [join(schema, bad)])
    assert registry.contracts.process.pid == started


async def test_a_value_that_takes_too_long_is_refused_and_the_next_one_checked(
    broker: Broker, registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = (await registry.register("a-value", NewSchema(text=NUMBERS, schema_type="JSON"))).id
    monkeypatch.setattr(json_process, "_SECONDS_MAX", 0.0)
    with pytest.raises(BrokenContract, match="too large for its schema"):
        await produce(broker, "a", [join(schema, numbers())])
    monkeypatch.undo()
    await produce(broker, "a", [join(schema, numbers())])
