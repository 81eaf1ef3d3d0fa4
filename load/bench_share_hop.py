"""Measure what it costs a share consumer to read through another broker.

That is, not through the coordinator of its group.

Two brokers share a PostgreSQL server with inline storage. A member that does what Kafka's share consumer does takes
and accepts all records of a partition, through the coordinator and through the other broker in turn. Each fetch
acknowledges the records of the one before, and waits until that is stored.
"""

from __future__ import annotations

import argparse
import socket
import struct
import time
from contextlib import ExitStack
from itertools import count, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast
from uuid import uuid4

import httpx
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from stele.broker_process import BrokerProcess
from stele.testing import run_broker
from stele.wire import schema

from app.cluster.group_shards import lease_of_group
from app.tcp.kafka.api import Api
from app.tcp.kafka.schemas.share_groups import (
    SHARE_FETCH_API,
    SHARE_GROUP_HEARTBEAT_API,
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ShareFetchRequest,
    ShareGroupHeartbeatRequest,
)

from .measure import Comparison, report
from .postgres_server import PostgresServer, find_bin
from .process_usage import cpu_seconds

TOPIC = "shared"
VALUE_BYTES = 1024
AT_ONCE = 500
GOAL = 0.7
_TIMEOUT_S = 120.0
_LOOK_S = 0.05
_ACCEPT = 1
_names = count(1)


class Connection:
    """One request at a time."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._socket = socket.create_connection((broker.host, broker.kafka_port), timeout=_TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb")

    def call(self, api: Api, request: Any) -> Any:
        version = api.versions[1]
        frame = bytearray(struct.pack(">hhih4sb", api.key, version, 0, 4, b"load", 0))
        schema.writer(cast("type[Any]", api.request), version, True)(request, frame)
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)
        (size,) = struct.unpack(">i", self._file.read(4))
        # After the correlation id and the tagged fields of the header.
        message, _ = schema.read_message(
            cast("type[Any]", api.response), version, True, self._file.read(size), 5
        )
        if message.error_code:
            raise RuntimeError(f"{api.name}: error {message.error_code}: {message.error_message}")
        return message

    def close(self) -> None:
        self._file.close()
        self._socket.close()


def fill(broker: BrokerProcess, records: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.kafka_bootstrap, "log_level": "0"})
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(_TIMEOUT_S)
    producer = Producer({"bootstrap.servers": broker.kafka_bootstrap, "log_level": "0", "linger.ms": 50})
    producer.produce_batch(TOPIC, [{"value": b"x" * VALUE_BYTES}] * records)
    if producer.flush(_TIMEOUT_S):
        raise RuntimeError("not all records were stored")


def group_at(broker: BrokerProcess, broker_id: int) -> str:
    """Return a new group at a broker, which begins at the first record."""
    while True:
        leases = httpx.get(f"{broker.http_url}/v1/cluster").json()["leases"]
        for _ in range(100):
            group = f"hop-{next(_names)}"
            if leases.get(lease_of_group(group), {}).get("broker_id") == broker_id:
                configs = {"share.auto.offset.reset": "earliest"}
                url = f"{broker.http_url}/v1/groups/{group}/configs"
                httpx.patch(url, json={"configs": configs}).raise_for_status()
                return group
        time.sleep(_LOOK_S)


def consume(coordinator: BrokerProcess, through: BrokerProcess, records: int) -> float:
    """Take and accept all records as a new group; return records per second."""
    group, member_id = group_at(coordinator, 1), str(uuid4())
    near, reading = Connection(coordinator), Connection(through)
    joined = near.call(
        SHARE_GROUP_HEARTBEAT_API,
        ShareGroupHeartbeatRequest(
            group_id=group, member_id=member_id, member_epoch=0, subscribed_topic_names=[TOPIC]
        ),
    )
    (topic,) = joined.assignment.topic_partitions
    taken = 0
    acknowledged: list[AcknowledgementBatch] = []
    begun_s = time.perf_counter()
    for epoch in count():
        partition = FetchPartition(partition_index=0, acknowledgement_batches=acknowledged)
        answer = reading.call(
            SHARE_FETCH_API,
            ShareFetchRequest(
                group_id=group,
                member_id=member_id,
                share_session_epoch=epoch,
                max_wait_ms=500,
                min_bytes=1,
                max_bytes=52_428_800,
                max_records=AT_ONCE,
                batch_size=AT_ONCE,
                share_acquire_mode=1,
                topics=[FetchTopic(topic_id=topic.topic_id, partitions=[partition])],
                forgotten_topics_data=(),
            ),
        )
        acquired = [
            one for found in answer.responses for part in found.partitions for one in part.acquired_records
        ]
        if taken == records:
            break
        taken += sum(one.last_offset - one.first_offset + 1 for one in acquired)
        acknowledged = [
            AcknowledgementBatch(
                first_offset=one.first_offset, last_offset=one.last_offset, acknowledge_types=[_ACCEPT]
            )
            for one in acquired
        ]
    rate = taken / (time.perf_counter() - begun_s)
    near.close()
    reading.close()
    return rate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=20_000, help="records per round (default: 20,000)")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with ExitStack() as stack:
        home = Path(stack.enter_context(TemporaryDirectory()))
        server = stack.enter_context(PostgresServer(find_bin()))
        first, second = (
            stack.enter_context(
                run_broker(
                    home / f"broker-{number}",
                    environment={
                        "STELE_STORAGE": "shared",
                        "STELE_POSTGRES_URL": server.dsn,
                        "STELE_BROKER_ID": str(number),
                    },
                )
            )
            for number in (1, 2)
        )
        fill(first, options.records)
        figures: list[tuple[float, float, float, float]] = []
        # Once for warmth.
        for _ in range(options.rounds + 1):
            used_s = [cpu_seconds(first.pid) + cpu_seconds(second.pid)]
            rates: list[float] = []
            for through in (second, first):
                rates.append(consume(first, through, options.records))
                used_s.append(cpu_seconds(first.pid) + cpu_seconds(second.pid))
            per_cpu_s = [options.records / (after - before) for before, after in pairwise(used_s)]
            figures.append((rates[0], rates[1], per_cpu_s[0], per_cpu_s[1]))
    far, near, far_cpu, near_cpu = ([row[column] for row in figures[1:]] for column in range(4))
    for unit, ours, yardstick in (
        ("records/s", far, near),
        ("records per second of CPU time of both brokers", far_cpu, near_cpu),
    ):
        report(
            f"ShareFetch with acknowledgements through another broker, {AT_ONCE} at once, {VALUE_BYTES} bytes",
            Comparison(ours=ours, yardstick=yardstick),
            unit=unit,
            yardstick="through the coordinator",
            goal=GOAL,
        )


if __name__ == "__main__":
    main()
