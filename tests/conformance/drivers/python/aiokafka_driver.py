"""The driver of aiokafka. ``python aiokafka_driver.py BOOTSTRAP``."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.abc import AbstractTokenProvider
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.helpers import create_ssl_context
from aiokafka.structs import OffsetAndMetadata
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

_POLL_MS = 100
_CLOSE_TIMEOUT_S = 30


class _Member:
    def __init__(self, consumer: Any) -> None:
        self.consumer = consumer
        self.was_assigned = False
        self.met: list[Any] = []


class _Listener(aiokafka.ConsumerRebalanceListener):
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
        self._login = login

    # Its base has no types, and a body that returns nothing.
    async def token(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self._login.token()


def _security(login: Login) -> dict[str, Any]:
    security = {
        "security_protocol": "SASL_SSL",
        "ssl_context": create_ssl_context(cafile=login.ca_file),
        "sasl_mechanism": login.mechanism,
    }
    if login.token_file:
        return {**security, "sasl_oauth_token_provider": _TokenProvider(login)}
    return {**security, "sasl_plain_username": login.user, "sasl_plain_password": login.password}


class AiokafkaDriver(PythonDriver):
    """Its event loop runs in a thread of its own, so that members live while no command is carried out."""

    client = "aiokafka"
    version = aiokafka.__version__
    unsupported = ("delete_group", "broker-side assignment", "share groups")

    def __init__(self, bootstrap: str, login: Login | None = None) -> None:
        super().__init__(bootstrap, login)
        self._config: dict[str, Any] = {"bootstrap_servers": bootstrap}
        if login is not None:
            self._config |= _security(login)
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="aiokafka", daemon=True).start()
        self._admin_made: Any = None
        self._members: dict[str, _Member] = {}
        self._transactional: dict[str, Any] = {}

    def do(self, command: Command) -> Any:
        async def call() -> Any:
            method = getattr(self, f"op_{command['op']}", None)
            if method is None:
                raise Refused("UNSUPPORTED", f"{self.client} has no {command['op']}")
            return await method(command)

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result()

    def close(self) -> None:
        async def stop() -> None:
            for member in self._members.values():
                await member.consumer.stop()
            for producer in self._transactional.values():
                await producer.stop()
            if self._admin_made is not None:
                await self._admin_made.close()

        asyncio.run_coroutine_threadsafe(stop(), self._loop).result(_CLOSE_TIMEOUT_S)

    def error_of(self, error: Exception) -> Refused:
        number = getattr(error, "errno", None)
        return Refused(number, str(error)) if isinstance(number, int) else super().error_of(error)

    async def _admin(self) -> Any:
        if self._admin_made is None:
            admin: Any = AIOKafkaAdminClient(**self._config)
            await admin.start()
            self._admin_made = admin
        return self._admin_made

    # ── records ──

    async def op_produce(self, command: Command) -> Any:
        producer: Any = AIOKafkaProducer(
            **self._config,
            acks="all" if command["acks"] == "all" else int(command["acks"]),
            enable_idempotence=command["idempotent"],
            compression_type=None if command["codec"] == "none" else command["codec"],
            linger_ms=50,
        )
        await producer.start()
        try:
            async with asyncio.timeout(deadline_of(command).left_s):
                sent = [
                    await producer.send(
                        command["topic"],
                        value=from_b64(record["value"]),
                        key=from_b64(record["key"]),
                        headers=headers_of(record),
                        partition=record["partition"],
                        timestamp_ms=record.get("timestamp"),
                    )
                    for record in command["records"]
                ]
                receipts = [await future for future in sent]
        finally:
            await producer.stop()
        return {"offsets": [-1 if receipt is None else receipt.offset for receipt in receipts]}

    async def op_produce_keyed(self, command: Command) -> Any:
        producer: Any = AIOKafkaProducer(**self._config)
        await producer.start()
        try:
            keys = [from_b64(key) for key in command["keys"]]
            sent = [await producer.send(command["topic"], value=key, key=key) for key in keys]
            return {"partitions": [(await future).partition for future in sent]}
        finally:
            await producer.stop()

    async def op_fetch(self, command: Command) -> Any:
        places = [TopicPartition(command["topic"], number) for number in partitions_of(command)]
        deadline = deadline_of(command)
        limits = limits_of(command, all_bytes="fetch_max_bytes", partition_bytes="max_partition_fetch_bytes")
        if "isolation" in command:
            limits["isolation_level"] = f"read_{command['isolation']}"
        consumer: Any = AIOKafkaConsumer(**self._config, group_id=None, **limits)
        await consumer.start()
        try:
            consumer.assign(places)
            if command["offset"] == "earliest":
                await consumer.seek_to_beginning(*places)
            elif command["offset"] == "latest":
                await consumer.seek_to_end(*places)
            else:
                for place in places:
                    consumer.seek(place, command["offset"])
            records: list[RecordJson] = []
            while len(records) < command["count"]:
                deadline.check(f"{command['count'] - len(records)} more records")
                met = await consumer.getmany(timeout_ms=_POLL_MS, max_records=command["count"] - len(records))
                records += [_record(message) for place in places for message in met.get(place, ())]
            return {"records": records}
        finally:
            await consumer.stop()

    async def op_offsets(self, command: Command) -> Any:
        place = TopicPartition(command["topic"], command["partition"])
        consumer: Any = AIOKafkaConsumer(**self._config, group_id=None)
        await consumer.start()
        try:
            if command["at"] == "earliest":
                return {"offset": (await consumer.beginning_offsets([place]))[place]}
            if command["at"] == "latest":
                return {"offset": (await consumer.end_offsets([place]))[place]}
            found = (await consumer.offsets_for_times({place: command["at"]}))[place]
            return {"offset": -1 if found is None else found.offset}
        finally:
            await consumer.stop()

    # ── transactions ──

    async def op_transact(self, command: Command) -> Any:
        async with asyncio.timeout(deadline_of(command).left_s):
            producer = self._transactional.get(command["producer"])
            is_new = producer is None
            if producer is None:
                producer = AIOKafkaProducer(**self._config, transactional_id=command["transactional_id"])
                await producer.start()
                self._transactional[command["producer"]] = producer
            if is_new or command["begins"]:
                await producer.begin_transaction()
            for record in command["records"]:
                await producer.send_and_wait(
                    command["topic"],
                    value=from_b64(record["value"]),
                    key=from_b64(record["key"]),
                    partition=record["partition"],
                )
            if "offset" in command:
                offsets = {TopicPartition(command["source"], 0): OffsetAndMetadata(command["offset"], "")}
                await producer.send_offsets_to_transaction(offsets, command["group"])
            if command["end"] == "commit":
                await producer.commit_transaction()
            elif command["end"] == "abort":
                await producer.abort_transaction()
        return {}

    # ── groups ──

    async def op_join(self, command: Command) -> Any:
        consumer: Any = AIOKafkaConsumer(
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
        consumer.subscribe(command["topics"], listener=_Listener(member))
        deadline = deadline_of(command)
        async with asyncio.timeout(deadline.left_s):
            await consumer.start()
        while not member.was_assigned:
            deadline.check("an assignment")
            await self._meet(member, _POLL_MS)
        return self._assignment(member)

    async def _meet(self, member: _Member, timeout_ms: float) -> None:
        for messages in (await member.consumer.getmany(timeout_ms=int(timeout_ms))).values():
            member.met += messages

    def _assignment(self, member: _Member) -> Any:
        return {"assignment": [[place.topic, place.partition] for place in member.consumer.assignment()]}

    async def op_assignment(self, command: Command) -> Any:
        member = self._members[command["member"]]
        deadline = Deadline(command.get("poll_ms", POLL_DEFAULT_MS))
        while not deadline.is_over:
            await self._meet(member, min(_POLL_MS, deadline.left_s * 1000))
        return self._assignment(member)

    async def op_poll(self, command: Command) -> Any:
        member = self._members[command["member"]]
        deadline = deadline_of(command)
        while len(member.met) < command["count"] and not deadline.is_over:
            await self._meet(member, min(_POLL_MS, deadline.left_s * 1000))
        met, member.met = member.met[: command["count"]], member.met[command["count"] :]
        return {"records": [_record(message, with_topic=True) for message in met]}

    async def op_commit(self, command: Command) -> Any:
        offsets = {
            TopicPartition(topic, partition): OffsetAndMetadata(offset, metadata)
            for topic, partition, offset, metadata in command["offsets"]
        }
        await self._members[command["member"]].consumer.commit(offsets)
        return {}

    async def op_leave(self, command: Command) -> Any:
        await self._members.pop(command["member"]).consumer.stop()
        return {}

    async def op_committed(self, command: Command) -> Any:
        place = TopicPartition(command["topic"], command["partition"])
        admin = await self._admin()
        found = (await admin.list_consumer_group_offsets(command["group"], partitions=[place])).get(place)
        if found is None:
            return {"offset": -1, "metadata": ""}
        return {"offset": found.offset, "metadata": found.metadata or ""}

    # ── topics ──

    async def op_create_topic(self, command: Command) -> Any:
        wanted = NewTopic(command["topic"], command["partitions"], 1, topic_configs=command["configs"])
        told = await (await self._admin()).create_topics([wanted])
        for topic, code, *message in told.topic_errors:
            if code:
                raise Refused(code, f"{topic}: {message}")
        return {}

    async def op_describe_topic(self, command: Command) -> Any:
        topic = command["topic"]
        admin = await self._admin()
        (found,) = await admin.describe_topics([topic])
        if found["error_code"]:
            raise Refused(found["error_code"], topic)
        (told,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        ((code, message, _, _, entries),) = told.resources
        if code:
            raise Refused(code, message)
        configs = {entry[0]: entry[1] for entry in entries}
        return {"partitions": len(found["partitions"]), "configs": configs}

    async def op_alter_topic(self, command: Command) -> Any:
        resource = ConfigResource(ConfigResourceType.TOPIC, command["topic"], command["configs"])
        (told,) = await (await self._admin()).alter_configs([resource])
        for code, message, *_ in told.resources:
            if code:
                raise Refused(code, message)
        return {}

    async def op_add_partitions(self, command: Command) -> Any:
        wanted = {command["topic"]: NewPartitions(command["partitions"])}
        await (await self._admin()).create_partitions(wanted)
        return {}

    async def op_delete_topic(self, command: Command) -> Any:
        told = await (await self._admin()).delete_topics([command["topic"]])
        for topic, code in told.topic_error_codes:
            if code:
                raise Refused(code, topic)
        return {}

    async def op_list_topics(self, command: Command) -> Any:
        return {"topics": await (await self._admin()).list_topics()}

    async def op_delete_records(self, command: Command) -> Any:
        place = TopicPartition(command["topic"], command["partition"])
        told = await (await self._admin()).delete_records({place: RecordsToDelete(command["before_offset"])})
        return {"log_start_offset": told[place]}

    async def op_list_groups(self, command: Command) -> Any:
        return {"groups": [group[0] for group in await (await self._admin()).list_consumer_groups()]}

    async def op_describe_group(self, command: Command) -> Any:
        (told,) = await (await self._admin()).describe_consumer_groups([command["group"]])
        (group,) = told.to_object()["groups"]
        if group["error_code"]:
            raise Refused(group["error_code"], command["group"])
        return {"state": group["state"], "members": len(group["members"])}


if __name__ == "__main__":
    main(AiokafkaDriver)
