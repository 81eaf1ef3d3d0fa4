"""Measure share groups beside Apache Kafka, and through a broker that does not coordinate the group.

Kafka's ``ShareConsumerPerformance`` takes and accepts all records of a topic, from Stele and from Apache Kafka in
turn. ``--only hop``: two brokers share a PostgreSQL server with inline storage, and a member that does what Kafka's
share consumer does takes and accepts all records of a partition, through the coordinator and through the other broker
in turn. Each fetch acknowledges the records of the one before, and waits until that is stored.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from itertools import count
from typing import Any
from uuid import uuid4

import httpx
from stele.broker_process import BrokerProcess

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

from .apache_kafka import run_tool
from .harness import Benchmark, Rounds, in_turn
from .kafka_clients import make_topic, produce
from .kafka_frames import api_request, api_response, connect, receive
from .results import at_least, at_most
from .subjects import SteleCluster, Subject, stele_and_kafka, stele_cluster

PERFORMANCE = "org.apache.kafka.tools.ShareConsumerPerformance"
CONFIGS = "kafka.admin.ConfigCommand"
VALUE_BYTES = 1024
PARTITIONS = 3
AT_ONCE = 500
_TIMEOUT_S = 120.0
_LOOK_S = 0.05
_ACCEPT = 1
# A result line has start, end, MB, MB/s, records/s, …
_RECORDS_PER_S = 4
_names = count(1)


# ── beside Apache Kafka ──


def take(subject: Subject, topic: str, records: int, threads: int) -> tuple[float, float]:
    """Take and accept all records of a topic.

    Return records per second, and the broker's microseconds of CPU time per record.
    """
    group = f"group-of-{topic}"
    at = ("--bootstrap-server", subject.bootstrap)
    configured = run_tool(
        CONFIGS,
        *(*at, "--alter", "--entity-type", "groups", "--entity-name", group),
        *("--add-config", "share.auto.offset.reset=earliest"),
    )
    if configured.returncode:
        raise RuntimeError(f"{subject.name}: {configured.stdout}{configured.stderr}")
    before_s = subject.cpu_s()
    done = run_tool(
        PERFORMANCE,
        *(*at, "--topic", topic, "--group", group, "--num-records", str(records)),
        *("--threads", str(threads), "--hide-header", "--timeout", "60000"),
        timeout_s=_TIMEOUT_S,
    )
    used_s = subject.cpu_s() - before_s
    figures = [line.split(",") for line in done.stdout.splitlines() if line.count(",") > _RECORDS_PER_S]
    if done.returncode or not figures:
        raise RuntimeError(f"{subject.name}: {done.stdout}{done.stderr}")
    return float(figures[-1][_RECORDS_PER_S]), used_s / records * 1e6


def measure_kafka(bench: Benchmark, number_of_rounds: int, records: int, threads: int) -> None:
    rounds = Rounds()
    with stele_and_kafka() as subjects:
        # Once for warmth.
        for number in range(number_of_rounds + 1):
            bench.say(f"round {number} of {number_of_rounds}")
            for subject in subjects:
                topic = make_topic(subject, partitions=PARTITIONS)
                produce(subject, topic, partitions=PARTITIONS, records=records, size=VALUE_BYTES)
                rate, cpu_us = take(subject, topic, records, threads)
                if number:
                    rounds.add("take", "rate", rate, is_stele=subject.is_stele)
                    rounds.add("take", "cpu", cpu_us, is_stele=subject.is_stele)
    bench.row(
        f"records/s, {threads} share consumers",
        table="work",
        baseline="Kafka",
        value=rounds.measure("take", "rate", "/s", at_least(1.0)),
        measures={"cpu": rounds.measure("take", "cpu", "µs", at_most(1.0))},
    )


# ── through another broker ──


class Connection:
    """One request at a time."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._socket = connect(broker.host, broker.kafka_port, timeout_s=_TIMEOUT_S)

    def call(self, api: Api, request: Any) -> Any:
        self._socket.sendall(api_request(api, request))
        message = api_response(api, receive(self._socket))
        if message.error_code:
            raise RuntimeError(f"{api.name}: error {message.error_code}: {message.error_message}")
        return message

    def close(self) -> None:
        self._socket.close()


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


def cpu_us_of(cluster: SteleCluster, through: BrokerProcess, topic: str, records: int) -> float:
    """Take and accept all records as a new group of the first broker; return the brokers' CPU time per record."""
    coordinator = cluster.members[0]
    group, member_id = group_at(coordinator, 1), str(uuid4())
    with ExitStack() as stack:
        near, reading = Connection(coordinator), Connection(through)
        stack.callback(near.close)
        stack.callback(reading.close)
        joins = ShareGroupHeartbeatRequest(
            group_id=group, member_id=member_id, member_epoch=0, subscribed_topic_names=[topic]
        )
        (assigned,) = near.call(SHARE_GROUP_HEARTBEAT_API, joins).assignment.topic_partitions
        taken, before_s = 0, cluster.cpu_s()
        acknowledged: list[AcknowledgementBatch] = []
        for epoch in count():
            partition = FetchPartition(partition_index=0, acknowledgement_batches=acknowledged)
            fetch = ShareFetchRequest(
                group_id=group,
                member_id=member_id,
                share_session_epoch=epoch,
                max_wait_ms=500,
                min_bytes=1,
                max_bytes=52_428_800,
                max_records=AT_ONCE,
                batch_size=AT_ONCE,
                share_acquire_mode=1,
                topics=[FetchTopic(topic_id=assigned.topic_id, partitions=[partition])],
                forgotten_topics_data=(),
            )
            answer = reading.call(SHARE_FETCH_API, fetch)
            if taken == records:
                break
            parts = [part for found in answer.responses for part in found.partitions]
            acquired = [span for part in parts for span in part.acquired_records]
            taken += sum(span.last_offset - span.first_offset + 1 for span in acquired)
            acknowledged = [
                AcknowledgementBatch(
                    first_offset=span.first_offset, last_offset=span.last_offset, acknowledge_types=[_ACCEPT]
                )
                for span in acquired
            ]
        return (cluster.cpu_s() - before_s) / records * 1e6


def measure_hop(bench: Benchmark, rounds: int, records: int) -> None:
    with stele_cluster(brokers=2, store="inline", linger_ms=5) as cluster:
        topic = make_topic(cluster)
        produce(cluster, topic, partitions=1, records=records, size=VALUE_BYTES)
        coordinator, other = cluster.members
        value = in_turn(
            lambda: cpu_us_of(cluster, other, topic, records),
            lambda: cpu_us_of(cluster, coordinator, topic, records),
            rounds=rounds,
            unit="µs",
            goal=at_most(3.0),
        )
    bench.row(
        "CPU time per record of a share consumer, read through another broker",
        table="work",
        baseline="through the coordinator",
        value=value,
    )


def main() -> None:
    bench = Benchmark(__file__, __doc__, rounds=3)
    bench.parser.add_argument("--only", choices=["kafka", "hop"])
    bench.add("--records", type=int, default=200_000, quick=10_000, help="per round (default: 200,000)")
    bench.parser.add_argument(
        "--threads", type=int, default=2, help="share consumers in the group (default: 2)"
    )
    with bench.run() as options:
        if options.only != "kafka":
            measure_hop(bench, options.rounds, options.records // 10)
        if options.only != "hop":
            measure_kafka(bench, options.rounds, options.records, options.threads)


if __name__ == "__main__":
    main()
