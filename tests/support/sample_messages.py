"""A plausible message of every kind that the Kafka protocol has: about one topic, group, user and producer."""

from __future__ import annotations

from typing import Any

from stele.wire.schema import Field, Type, fields_of

from tests.support.batches import batch_of

TOPIC, GROUP, TRANSACTIONAL_ID = "orders", "group", "transactional"

_TEXTS = {
    "group_id": GROUP,
    "groups": GROUP,
    "group_ids": GROUP,
    "groups_names": GROUP,
    "key": GROUP,
    "coordinator_keys": GROUP,
    "transactional_id": TRANSACTIONAL_ID,
    "v3_and_below_transactional_id": TRANSACTIONAL_ID,
    "transactional_ids": TRANSACTIONAL_ID,
    "transactional_id_pattern": ".*",
    "protocol_type": "consumer",
    "protocol_name": "range",
    "mechanism": "PLAIN",
    "principal": "User:alice",
    "principal_filter": "User:alice",
    "host": "*",
    "host_filter": "*",
    "subscribed_topic_regex": "ord.*",
    "server_assignor": "uniform",
    "entity_type": "user",
    "entity_name": "alice",
    "feature": "transaction.version",
    "path": "/data",
    "instance_id": "instance",
    "group_instance_id": "instance",
    "rack_id": "",
    "cluster_id": "",
}
_NUMBERS: dict[str, Any] = {
    "acks": 1,
    "timeout_ms": 1000,
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 10_000,
    "transaction_timeout_ms": 10_000,
    "max_bytes": 1 << 20,
    "partition_max_bytes": 1 << 20,
    "max_records": 10,
    "batch_size": 10,
    "num_partitions": 1,
    "replication_factor": 1,
    "count": 2,
    "session_epoch": -1,
    "current_leader_epoch": -1,
    "last_fetched_epoch": -1,
    "replica_id": -1,
    "resource_type": 2,
    "resource_type_filter": 2,
    "resource_pattern_type": 3,
    "pattern_type_filter": 3,
    "operation": 3,
    "permission_type": 3,
    "generation_id": -1,
    "generation_id_or_member_epoch": -1,
    "producer_id": 1,
    "v3_and_below_producer_id": 1,
    "iterations": 4096,
    "acknowledge_types": 1,
    "value": 1024.0,
    "duration_filter": -1,
    "response_partition_limit": 100,
}
_PARTITIONS = frozenset(("partition", "partition_index", "partitions", "partition_indexes", "index"))
# Rather null than about something.
_NULL = frozenset(
    ("group_instance_id", "instance_id", "cursor", "topology", "match", "assignments", "cluster_id")
)


def sample(
    cls: type, version: int, *, topic_id: bytes, topic: str = TOPIC, partition: int = 0, nulls: bool = False
) -> Any:
    """Return a message with one item in each array; with ``nulls``, null where that is allowed."""
    return _Sampler(version, topic_id, topic, partition, nulls).message(cls)


class _Sampler:
    def __init__(self, version: int, topic_id: bytes, topic: str, partition: int, nulls: bool) -> None:
        self._version = version
        self._topic_id = topic_id
        self._topic = topic
        self._partition = partition
        self._nulls = nulls

    def message(self, cls: type) -> Any:
        return cls(
            **{one.name: self._field(cls, one) for one in fields_of(cls) if self._version in one.versions}
        )

    def _field(self, cls: type, one: Field) -> Any:
        if self._version in one.nullable and (self._nulls or one.name in _NULL):
            return None
        return self._value(cls, one.name, one.type)

    def _value(self, cls: type, name: str, kind: Type) -> Any:
        match kind.kind:
            case "array":
                return [self._value(cls, name, kind.element)]
            case "struct":
                return self.message(kind.struct_class)
            case "string":
                if name == "name" and cls.__name__ in _NAMES:
                    return _NAMES[cls.__name__]
                if name == "value":
                    return "1000"
                return _TEXTS.get(name, self._topic)
            case "uuid":
                return self._topic_id
            case "records":
                return batch_of([b"a", b"b"])
            case "bytes":
                return b"\x00" * 32
            case "bool":
                return False
            case "float64":
                return _NUMBERS.get(name, 0.0)
            case _:
                return self._partition if name in _PARTITIONS else _NUMBERS.get(name, 0)


_NAMES = {
    "CreatableTopic": "new",
    "CreatableTopicConfig": "retention.ms",
    "AlterableConfig": "retention.ms",
    "JoinGroupRequestProtocol": "range",
    "ScramCredentialDeletion": "alice",
    "ScramCredentialUpsertion": "alice",
    "UserName": "alice",
}
