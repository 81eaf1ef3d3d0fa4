"""A plausible message of every kind that the binary protocol has: about one topic, group and transactional id."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any, cast

from stele.wire import messages as m
from stele.wire.schema import NO_UUID, Field, Type, fields_of

from app.groups.leases.lease import Lease, LeasedPartition
from tests.support.batches import batch_of

TOPIC, GROUP = "orders", "group"
LEASE = Lease(
    group=GROUP,
    lease_id="made-up",
    partitions=[LeasedPartition(topic=TOPIC, partition=0, offset=0, next_offset=1)],
).token()
VALUES: dict[str, Any] = {
    "group": GROUP,
    "lease": LEASE,
    "transactional_id": "transactional",
    "start": "earliest",
    "member_id": "",
    "abandoned_prefix": "",
    "batch_size": 1,
    "acks": 1,
    "timeout_ms": 1000,
    "session_timeout_ms": 10_000,
    "lease_ms": 1000,
    "max_bytes": 1 << 20,
    "max_records": 10,
    "max_partitions": 1,
    "version": 1,
    "partitions": 2,
}


def sample(kind: type[m.Request]) -> m.Request:
    """Return a request with one item in each array."""
    return cast("Any", kind)(**{one.name: _value_of(one, one.type) for one in fields_of(kind)})


def _value_of(one: Field, kind: Type) -> Any:
    match kind.kind:
        case "array":
            return [] if one.name == "configs" else [_value_of(one, kind.element)]
        case "struct":
            return kind.struct_class(
                **{inner.name: _value_of(inner, inner.type) for inner in fields_of(kind.struct_class)}
            )
        case "string":
            return VALUES.get(one.name, TOPIC)
        case "bytes":
            return b"value"
        case "records":
            return batch_of([b"a"])
        case "uuid":
            return NO_UUID
        case "bool":
            return False
        case _:
            return VALUES.get(one.name, 0)


def codes_of(answer: Any) -> Iterator[int]:
    """Yield the error codes of a response and its parts."""
    for field in fields(answer):
        value = getattr(answer, field.name)
        if field.name == "code":
            yield int(value)
        elif isinstance(value, list | tuple):
            for part in cast("list[Any]", value):
                if hasattr(part, "__dataclass_fields__"):
                    yield from codes_of(part)
