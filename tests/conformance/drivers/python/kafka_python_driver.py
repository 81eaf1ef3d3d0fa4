"""The driver of kafka-python. ``python kafka_python_driver.py BOOTSTRAP``."""

from __future__ import annotations

from typing import Any

import kafka
from driver_protocol import (
    HEARTBEAT_INTERVAL_MS,
    POLL_DEFAULT_MS,
    SESSION_TIMEOUT_DEFAULT_MS,
    Command,
    Deadline,
    Login,
    PythonDriver,
    RecordJson,
    Refused,
    deadline_of,
    from_b64,
    headers_of,
    limits_of,
    main,
    partitions_of,
    record_json,
)
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka import errors as kafka_errors
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.net.sasl.oauth import AbstractTokenProvider
from kafka.structs import OffsetAndMetadata, TopicPartition
from kafka.version import __version__ as kafka_version

_POLL_MS = 100
# A rebalance that ends between two polls of a member is lost on it: its next poll joins again, and so on, unless
# the others poll at the same time (with Apache Kafka as well). They hear of a rebalance by their next heartbeat.
_MEMBER_POLL_MS = 2 * HEARTBEAT_INTERVAL_MS
# On a busy machine a rebalance outlasts that, so a poll that ended within one is followed by a longer one.
_LONGEST_MEMBER_POLL_MS = 32 * HEARTBEAT_INTERVAL_MS


class _Member:
    def __init__(self, consumer: Any) -> None:
        self.consumer = consumer
        self.was_assigned = False
        self.poll_ms = _MEMBER_POLL_MS
        self.met: list[Any] = []


class _Listener(kafka.ConsumerRebalanceListener):
    def __init__(self, member: _Member) -> None:
        self._member = member

    def on_partitions_revoked(self, revoked: Any) -> None:
        pass

    def on_partitions_assigned(self, assigned: Any) -> None:
        self._member.was_assigned = True


def _record(message: Any, *, with_topic: bool = False) -> RecordJson:
    return record_json(
        topic=message.topic if with_topic else None,
        partition=message.partition,
        offset=message.offset,
        timestamp=message.timestamp,
        key=message.key,
        value=message.value,
        headers=list(message.headers),
    )


class _TokenProvider(AbstractTokenProvider):
    def __init__(self, login: Login) -> None:
        super().__init__()
        self._login = login

    # Its base has no types, and a body that returns nothing.
    def token(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self._login.token()


def _security(login: Login) -> dict[str, Any]:
    security = {
        "security_protocol": "SASL_SSL",
        "ssl_cafile": login.ca_file,
        "sasl_mechanism": login.mechanism,
    }
    if login.token_file:
        return {**security, "sasl_oauth_token_provider": _TokenProvider(login)}
    return {**security, "sasl_plain_username": login.user, "sasl_plain_password": login.password}


class KafkaPythonDriver(PythonDriver):
    client = "kafka-python"
    version = kafka_version
    unsupported = ("null header values", "broker-side assignment", "share groups")

    def __init__(self, bootstrap: str, login: Login | None = None) -> None:
        super().__init__(bootstrap, login)
        self._config: dict[str, Any] = {"bootstrap_servers": bootstrap}
        if login is not None:
            self._config |= _security(login)
        self._admin_made: Any = None
        self._members: dict[str, _Member] = {}
        self._transactional: dict[str, Any] = {}

    @property
    def _admin(self) -> Any:
        if self._admin_made is None:
            self._admin_made = KafkaAdminClient(**self._config)
        return self._admin_made

    def close(self) -> None:
        for member in self._members.values():
            member.consumer.close()
        for producer in self._transactional.values():
            producer.close(timeout=1)
        if self._admin_made is not None:
            self._admin_made.close()

    def error_of(self, error: Exception) -> Refused:
        number = getattr(error, "errno", None)
        return Refused(number, str(error)) if isinstance(number, int) else super().error_of(error)

    # ── records ──

    def op_produce(self, command: Command) -> Any:
        producer: Any = KafkaProducer(
            **self._config,
            acks="all" if command["acks"] == "all" else int(command["acks"]),
            enable_idempotence=command["idempotent"],
            compression_type=None if command["codec"] == "none" else command["codec"],
            linger_ms=50,
        )
        deadline = deadline_of(command)
        try:
            futures = [
                producer.send(
                    command["topic"],
                    value=from_b64(record["value"]),
                    key=from_b64(record["key"]),
                    headers=headers_of(record),
                    partition=record["partition"],
                    timestamp_ms=record.get("timestamp"),
                )
                for record in command["records"]
            ]
            producer.flush(deadline.left_s)
            offsets = [future.get(deadline.left_s).offset for future in futures]
        finally:
            producer.close(deadline.left_s)
        return {"offsets": offsets}

    def op_produce_keyed(self, command: Command) -> Any:
        producer: Any = KafkaProducer(**self._config)
        deadline = deadline_of(command)
        try:
            keys = [from_b64(key) for key in command["keys"]]
            futures = [producer.send(command["topic"], value=key, key=key) for key in keys]
            return {"partitions": [future.get(deadline.left_s).partition for future in futures]}
        finally:
            producer.close(deadline.left_s)

    def op_fetch(self, command: Command) -> Any:
        places = [TopicPartition(command["topic"], number) for number in partitions_of(command)]
        deadline = deadline_of(command)
        limits = limits_of(
            command,
            all_bytes="fetch_max_bytes",
            partition_bytes="max_partition_fetch_bytes",
            answer_bytes="receive_message_max_bytes",
        )
        if "isolation" in command:
            limits["isolation_level"] = f"read_{command['isolation']}"
        # It goes on trying after a refused login, until then.
        limits["bootstrap_timeout_ms"] = int(deadline.left_s * 1000)
        consumer: Any = KafkaConsumer(**self._config, group_id=None, **limits)
        try:
            consumer.assign(places)
            if command["offset"] == "earliest":
                consumer.seek_to_beginning(*places)
            elif command["offset"] == "latest":
                consumer.seek_to_end(*places)
            else:
                for place in places:
                    consumer.seek(place, command["offset"])
            records: list[RecordJson] = []
            while len(records) < command["count"]:
                deadline.check(f"{command['count'] - len(records)} more records")
                met = consumer.poll(_POLL_MS, max_records=command["count"] - len(records))
                records += [_record(message) for place in places for message in met.get(place, ())]
            return {"records": records}
        finally:
            consumer.close()

    def op_offsets(self, command: Command) -> Any:
        place = TopicPartition(command["topic"], command["partition"])
        consumer: Any = KafkaConsumer(**self._config, group_id=None)
        try:
            if command["at"] == "earliest":
                return {"offset": consumer.beginning_offsets([place])[place]}
            if command["at"] == "latest":
                return {"offset": consumer.end_offsets([place])[place]}
            found = consumer.offsets_for_times({place: command["at"]})[place]
            return {"offset": -1 if found is None else found.offset}
        finally:
            consumer.close()

    # ── transactions ──

    def op_transact(self, command: Command) -> Any:
        deadline = deadline_of(command)
        producer = self._transactional.get(command["producer"])
        is_new = producer is None
        if producer is None:
            producer = KafkaProducer(**self._config, transactional_id=command["transactional_id"])
            producer.init_transactions()
            self._transactional[command["producer"]] = producer
        if is_new or command["begins"]:
            producer.begin_transaction()
        futures = [
            producer.send(
                command["topic"],
                value=from_b64(record["value"]),
                key=from_b64(record["key"]),
                partition=record["partition"],
            )
            for record in command["records"]
        ]
        for future in futures:
            future.get(deadline.left_s)
        if "offset" in command:
            offsets = {TopicPartition(command["source"], 0): OffsetAndMetadata(command["offset"], "", -1)}
            producer.send_offsets_to_transaction(offsets, command["group"])
        if command["end"] == "commit":
            producer.commit_transaction()
        elif command["end"] == "abort":
            producer.abort_transaction()
        return {}

    # ── groups ──

    def op_join(self, command: Command) -> Any:
        consumer: Any = KafkaConsumer(
            **self._config,
            group_id=command["group"],
            group_instance_id=command.get("instance_id"),
            session_timeout_ms=command.get("session_timeout_ms", SESSION_TIMEOUT_DEFAULT_MS),
            heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
            auto_offset_reset=command.get("start", "earliest"),
            enable_auto_commit=False,
        )
        member = _Member(consumer)
        self._members[command["member"]] = member
        # Metadata that comes while this member, as the leader, hands out partitions is taken for what it
        # handed out: it would have none for the next five minutes. So they come before.
        for topic in command["topics"]:
            consumer.partitions_for_topic(topic)
        consumer.subscribe(command["topics"], listener=_Listener(member))
        deadline = deadline_of(command)
        while not member.was_assigned:
            deadline.check("an assignment")
            self._meet(member)
        return self._assignment(member)

    def _meet(self, member: _Member) -> None:
        for messages in member.consumer.poll(member.poll_ms).values():
            member.met += messages
        is_rebalancing = member.consumer._coordinator.need_rejoin()
        longer_ms = min(2 * member.poll_ms, _LONGEST_MEMBER_POLL_MS)
        member.poll_ms = longer_ms if is_rebalancing else _MEMBER_POLL_MS

    def _assignment(self, member: _Member) -> Any:
        return {"assignment": [[place.topic, place.partition] for place in member.consumer.assignment()]}

    def op_assignment(self, command: Command) -> Any:
        member = self._members[command["member"]]
        deadline = Deadline(command.get("poll_ms", POLL_DEFAULT_MS))
        while not deadline.is_over:
            self._meet(member)
        if member.consumer._coordinator.need_rejoin():
            # It has given its partitions up, or is about to, and names them until it gets others.
            return {"assignment": []}
        return self._assignment(member)

    def op_poll(self, command: Command) -> Any:
        member = self._members[command["member"]]
        deadline = deadline_of(command)
        while len(member.met) < command["count"] and not deadline.is_over:
            self._meet(member)
        met, member.met = member.met[: command["count"]], member.met[command["count"] :]
        return {"records": [_record(message, with_topic=True) for message in met]}

    def op_commit(self, command: Command) -> Any:
        offsets = {
            TopicPartition(topic, partition): OffsetAndMetadata(offset, metadata, -1)
            for topic, partition, offset, metadata in command["offsets"]
        }
        self._members[command["member"]].consumer.commit(offsets)
        return {}

    def op_leave(self, command: Command) -> Any:
        self._members.pop(command["member"]).consumer.close()
        return {}

    def op_committed(self, command: Command) -> Any:
        place = TopicPartition(command["topic"], command["partition"])
        found = self._admin.list_group_offsets({command["group"]: [place]})[command["group"]].get(place)
        if found is None:
            return {"offset": -1, "metadata": ""}
        return {"offset": found.offset, "metadata": found.metadata or ""}

    # ── topics ──

    def op_create_topic(self, command: Command) -> Any:
        wanted = {
            "num_partitions": command["partitions"],
            "replication_factor": 1,
            "configs": command["configs"],
        }
        self._admin.create_topics({command["topic"]: wanted})
        return {}

    def op_describe_topic(self, command: Command) -> Any:
        topic = command["topic"]
        (found,) = self._admin.describe_topics([topic])
        if found["error_code"]:
            raise Refused(found["error_code"], topic)
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        entries = self._admin.describe_configs([resource], config_filter="all")["topic"][topic]
        configs = {name: entry["value"] for name, entry in entries.items()}
        return {"partitions": len(found["partitions"]), "configs": configs}

    def op_alter_topic(self, command: Command) -> Any:
        topic = command["topic"]
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, command["configs"])
        told = self._admin.alter_configs([resource])["topic"][topic]
        if told != "OK":
            raise Refused("UNKNOWN", told)
        return {}

    def op_add_partitions(self, command: Command) -> Any:
        self._admin.create_partitions({command["topic"]: command["partitions"]})
        return {}

    def op_delete_topic(self, command: Command) -> Any:
        self._admin.delete_topics([command["topic"]])
        return {}

    def op_list_topics(self, command: Command) -> Any:
        return {"topics": self._admin.list_topics()}

    def op_delete_records(self, command: Command) -> Any:
        place = TopicPartition(command["topic"], command["partition"])
        told = self._admin.delete_records({place: command["before_offset"]})[place]
        return {"log_start_offset": told["low_watermark"]}

    def op_list_groups(self, command: Command) -> Any:
        return {"groups": [group["group_id"] for group in self._admin.list_groups()]}

    def op_describe_group(self, command: Command) -> Any:
        group = self._admin.describe_groups([command["group"]])[command["group"]]
        if group["error"]:
            raise Refused("UNKNOWN", group["error"])
        return {"state": group["group_state"], "members": len(group["members"])}

    def op_delete_group(self, command: Command) -> Any:
        told = self._admin.delete_groups([command["group"]])[command["group"]]
        if told != "OK":
            # It tells the name of its exception class, which knows its number.
            raise Refused(getattr(kafka_errors, told).errno, told)
        return {}


if __name__ == "__main__":
    main(KafkaPythonDriver)
