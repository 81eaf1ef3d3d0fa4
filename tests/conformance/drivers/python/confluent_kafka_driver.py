"""The driver of confluent-kafka (librdkafka). ``python confluent_kafka_driver.py BOOTSTRAP``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition, admin
from driver_protocol import (
    HEARTBEAT_INTERVAL_MS,
    POLL_DEFAULT_MS,
    SESSION_TIMEOUT_DEFAULT_MS,
    Command,
    Deadline,
    Header,
    Login,
    PythonDriver,
    RecordJson,
    Refused,
    deadline_of,
    expiry_of,
    from_b64,
    headers_of,
    librdkafka_limits,
    main,
    partitions_of,
    record_json,
)

# Its types leave out half of what it has.
_api = cast("Any", admin)

_POLL_S = 0.1
# As librdkafka numbers them.
_OFFSETS: dict[str, int] = {"earliest": -2, "latest": -1}


class _Member:
    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.was_assigned = False
        self.met: list[Message] = []


def _record(message: Message, *, with_topic: bool = False) -> RecordJson:
    return record_json(
        topic=message.topic() if with_topic else None,
        partition=cast("int", message.partition()),
        offset=cast("int", message.offset()),
        timestamp=message.timestamp()[1],
        key=message.key(),
        value=message.value(),
        headers=cast("list[Header]", message.headers() or []),
    )


def _checked(message: Message) -> Message:
    if error := message.error():
        raise KafkaException(error)
    return message


class ConfluentKafkaDriver(PythonDriver):
    client = "confluent-kafka"
    version = f"{confluent_kafka.__version__}"
    unsupported = ("share groups",)

    def __init__(self, bootstrap: str, login: Login | None = None) -> None:
        super().__init__(bootstrap, login)
        self._config: dict[str, Any] = {"bootstrap.servers": bootstrap, "error_cb": self._on_error}
        self._refused_login: Any = None
        if login is not None:
            self._config |= login.librdkafka
            if login.token_file:

                def token(_: str) -> tuple[str, float]:
                    read = login.token()
                    return read, expiry_of(read)

                self._config["oauth_cb"] = token
        self._admin_made: Any = None
        self._members: dict[str, _Member] = {}
        self._transactional: dict[str, Producer] = {}

    def _on_error(self, error: Any) -> None:
        if error.code() == KafkaError._AUTHENTICATION:
            self._refused_login = error

    def _check_login(self) -> None:
        """The client goes on trying after a refused login; its application hears of it in the callback."""
        error, self._refused_login = self._refused_login, None
        if error is not None:
            raise KafkaException(error)

    @property
    def _admin(self) -> Any:
        if self._admin_made is None:
            self._admin_made = _api.AdminClient(dict(self._config))
        return self._admin_made

    def close(self) -> None:
        for member in self._members.values():
            member.consumer.close()

    def error_of(self, error: Exception) -> Refused:
        if isinstance(error, KafkaException):
            cause = error.args[0]
            # Negative codes but -1 are librdkafka's own.
            return Refused(cause.code() if cause.code() >= -1 else cause.name(), cause.str())
        return super().error_of(error)

    # ── records ──

    def _send(
        self, config: dict[str, Any], command: Command, send: Callable[[Producer, Any], None]
    ) -> list[Message]:
        """What was delivered, in the order of the callback's additions."""
        producer = Producer({**self._config, **config})
        delivered: list[Message] = []
        errors: list[Any] = []

        def on_delivery(error: Any, message: Message) -> None:
            if error is not None:
                errors.append(error)
            delivered.append(message)

        send(producer, on_delivery)
        unsent = producer.flush(deadline_of(command).left_s)
        if errors:
            raise KafkaException(errors[0])
        if unsent:
            raise Refused("TIMEOUT", f"{unsent} records were not delivered")
        return delivered

    def op_produce(self, command: Command) -> Any:
        topic, records = command["topic"], command["records"]
        offsets = [-1] * len(records)

        def send(producer: Producer, on_delivery: Any) -> None:
            def delivery(place: int) -> Any:
                def called(error: Any, message: Message) -> None:
                    on_delivery(error, message)
                    offsets[place] = cast("int", message.offset())

                return called

            for place, record in enumerate(records):
                producer.produce(
                    topic,
                    value=from_b64(record["value"]),
                    key=from_b64(record["key"]),
                    partition=record["partition"],
                    timestamp=record.get("timestamp", 0),
                    headers=cast("Any", headers_of(record)),
                    on_delivery=delivery(place),
                )

        self._send(
            {
                "acks": command["acks"],
                "enable.idempotence": command["idempotent"],
                "compression.type": command["codec"],
                # Records that are given together make batches of many.
                "linger.ms": 50,
            },
            command,
            send,
        )
        # With acks 0 librdkafka makes up the numbers 0, 0, …
        return {"offsets": offsets if command["acks"] != "0" else [-1] * len(records)}

    def op_produce_keyed(self, command: Command) -> Any:
        keys = [from_b64(key) for key in command["keys"]]
        partitions = [-1] * len(keys)

        def send(producer: Producer, on_delivery: Any) -> None:
            def delivery(place: int) -> Any:
                def called(error: Any, message: Message) -> None:
                    on_delivery(error, message)
                    partitions[place] = cast("int", message.partition())

                return called

            for place, key in enumerate(keys):
                producer.produce(command["topic"], value=key, key=key, on_delivery=delivery(place))

        self._send({}, command, send)
        return {"partitions": partitions}

    def op_fetch(self, command: Command) -> Any:
        wanted = command["offset"]
        offset = _OFFSETS[wanted] if isinstance(wanted, str) else int(wanted)
        deadline = deadline_of(command)
        limits = {name: str(limit) for name, limit in librdkafka_limits(command).items()}
        if "isolation" in command:
            limits["isolation.level"] = f"read_{command['isolation']}"
        consumer = Consumer({**self._config, "group.id": "fetch-none", "enable.auto.commit": False, **limits})
        try:
            consumer.assign([TopicPartition(command["topic"], n, offset) for n in partitions_of(command)])
            records: list[RecordJson] = []
            while len(records) < command["count"]:
                deadline.check(f"{command['count'] - len(records)} more records")
                message = consumer.poll(_POLL_S)
                self._check_login()
                if message is not None:
                    records.append(_record(_checked(message)))
            return {"records": records}
        finally:
            consumer.close()

    def op_offsets(self, command: Command) -> Any:
        at = command["at"]
        if at == "earliest":
            spec = _api.OffsetSpec.earliest()
        elif at == "latest":
            spec = _api.OffsetSpec.latest()
        else:
            spec = _api.OffsetSpec.for_timestamp(at)
        place = TopicPartition(command["topic"], command["partition"])
        future = self._admin.list_offsets({place: spec}, request_timeout=deadline_of(command).left_s)[place]
        return {"offset": future.result().offset}

    # ── transactions ──

    def op_transact(self, command: Command) -> Any:
        timeout_s = deadline_of(command).left_s
        producer = self._transactional.get(command["producer"])
        if producer is None:
            producer = Producer({**self._config, "transactional.id": command["transactional_id"]})
            producer.init_transactions(timeout_s)
            self._transactional[command["producer"]] = producer
            producer.begin_transaction()
        elif command["begins"]:
            producer.begin_transaction()
        for record in command["records"]:
            producer.produce(
                command["topic"],
                value=from_b64(record["value"]),
                key=from_b64(record["key"]),
                partition=record["partition"],
            )
        producer.flush(timeout_s)
        if "offset" in command:
            consumer = Consumer({**self._config, "group.id": command["group"]})
            place = TopicPartition(command["source"], 0, command["offset"])
            try:
                producer.send_offsets_to_transaction([place], consumer.consumer_group_metadata(), timeout_s)
            finally:
                consumer.close()
        if command["end"] == "commit":
            producer.commit_transaction(timeout_s)
        elif command["end"] == "abort":
            producer.abort_transaction(timeout_s)
        return {}

    # ── groups ──

    def op_join(self, command: Command) -> Any:
        config = {
            **self._config,
            "group.id": command["group"],
            "auto.offset.reset": command.get("start", "earliest"),
            "enable.auto.commit": False,
        }
        if "protocol" in command:
            # The broker tells such a member its session timeout and how often to send heartbeats.
            config["group.protocol"] = command["protocol"]
        else:
            config["session.timeout.ms"] = command.get("session_timeout_ms", SESSION_TIMEOUT_DEFAULT_MS)
            config["heartbeat.interval.ms"] = HEARTBEAT_INTERVAL_MS
        if "instance_id" in command:
            config["group.instance.id"] = command["instance_id"]
        member = _Member(Consumer(config))
        self._members[command["member"]] = member

        def on_assign(consumer: Consumer, partitions: list[TopicPartition]) -> None:
            member.was_assigned = True

        def on_revoke(consumer: Consumer, partitions: list[TopicPartition]) -> None:
            # Their next owner reads their records again, from what was committed.
            lost = {(place.topic, place.partition) for place in partitions}
            member.met = [met for met in member.met if (met.topic(), met.partition()) not in lost]

        member.consumer.subscribe(command["topics"], on_assign=on_assign, on_revoke=on_revoke)
        deadline = deadline_of(command)
        while not member.was_assigned:
            deadline.check("an assignment")
            self._meet(member, _POLL_S)
        return self._assignment(member)

    def _meet(self, member: _Member, timeout_s: float) -> None:
        message = member.consumer.poll(timeout_s)
        if message is not None:
            member.met.append(_checked(message))

    def _assignment(self, member: _Member) -> Any:
        return {"assignment": [[place.topic, place.partition] for place in member.consumer.assignment()]}

    def op_assignment(self, command: Command) -> Any:
        member = self._members[command["member"]]
        deadline = Deadline(command.get("poll_ms", POLL_DEFAULT_MS))
        while not deadline.is_over:
            self._meet(member, min(_POLL_S, deadline.left_s))
        return self._assignment(member)

    def op_poll(self, command: Command) -> Any:
        member = self._members[command["member"]]
        deadline = deadline_of(command)
        while len(member.met) < command["count"] and not deadline.is_over:
            self._meet(member, min(_POLL_S, deadline.left_s))
        met, member.met = member.met[: command["count"]], member.met[command["count"] :]
        return {"records": [_record(message, with_topic=True) for message in met]}

    def op_commit(self, command: Command) -> Any:
        offsets = [
            TopicPartition(topic, partition, offset, metadata=metadata)
            for topic, partition, offset, metadata in command["offsets"]
        ]
        for place in self._members[command["member"]].consumer.commit(offsets=offsets, asynchronous=False):
            if place.error:
                raise KafkaException(place.error)
        return {}

    def op_leave(self, command: Command) -> Any:
        self._members.pop(command["member"]).consumer.close()
        return {}

    def op_committed(self, command: Command) -> Any:
        consumer = Consumer({**self._config, "group.id": command["group"]})
        try:
            asked = [TopicPartition(command["topic"], command["partition"])]
            (place,) = consumer.committed(asked, timeout=deadline_of(command).left_s)
            if place.error:
                raise KafkaException(place.error)
        finally:
            consumer.close()
        # -1001 is librdkafka's "nothing is committed".
        return {"offset": max(place.offset, -1), "metadata": place.metadata or ""}

    # ── topics ──

    def op_create_topic(self, command: Command) -> Any:
        topic = _api.NewTopic(
            command["topic"], num_partitions=command["partitions"], config=command["configs"]
        )
        self._admin.create_topics([topic])[command["topic"]].result()
        return {}

    def op_describe_topic(self, command: Command) -> Any:
        topic = command["topic"]
        found = self._admin.list_topics(topic, timeout=deadline_of(command).left_s).topics[topic]
        if found.error:
            raise KafkaException(found.error)
        resource = _api.ConfigResource(_api.ResourceType.TOPIC, topic)
        entries = self._admin.describe_configs([resource])[resource].result()
        configs = {name: entry.value for name, entry in entries.items()}
        return {"partitions": len(found.partitions), "configs": configs}

    def op_alter_topic(self, command: Command) -> Any:
        entries = [
            _api.ConfigEntry(name, value, incremental_operation=_api.AlterConfigOpType.SET)
            for name, value in command["configs"].items()
        ]
        resource = _api.ConfigResource(_api.ResourceType.TOPIC, command["topic"], incremental_configs=entries)
        self._admin.incremental_alter_configs([resource])[resource].result()
        return {}

    def op_add_partitions(self, command: Command) -> Any:
        wanted = _api.NewPartitions(command["topic"], command["partitions"])
        self._admin.create_partitions([wanted])[command["topic"]].result()
        return {}

    def op_delete_topic(self, command: Command) -> Any:
        self._admin.delete_topics([command["topic"]])[command["topic"]].result()
        return {}

    def op_list_topics(self, command: Command) -> Any:
        return {"topics": list(self._admin.list_topics(timeout=deadline_of(command).left_s).topics)}

    def op_delete_records(self, command: Command) -> Any:
        place = TopicPartition(command["topic"], command["partition"], command["before_offset"])
        (future,) = self._admin.delete_records([place]).values()
        return {"log_start_offset": future.result().low_watermark}

    def op_list_groups(self, command: Command) -> Any:
        listing = self._admin.list_consumer_groups().result()
        return {"groups": [group.group_id for group in listing.valid]}

    def op_describe_group(self, command: Command) -> Any:
        group = self._admin.describe_consumer_groups([command["group"]])[command["group"]].result()
        states = {
            "PREPARING_REBALANCING": "PreparingRebalance",
            "COMPLETING_REBALANCING": "CompletingRebalance",
        }
        state = states.get(group.state.name, group.state.name.capitalize())
        return {"state": state, "members": len(group.members)}

    def op_delete_group(self, command: Command) -> Any:
        self._admin.delete_consumer_groups([command["group"]])[command["group"]].result()
        return {}


if __name__ == "__main__":
    main(ConfluentKafkaDriver)
