"""Measure share groups with Kafka's consumer beside Apache Kafka, and over HTTP beside leases.

Kafka's ``ShareConsumerPerformance`` takes and accepts all records of a topic, from Stele and from Apache Kafka in
turn. Over HTTP one client polls and acknowledges, with runs of records and one by one, a share group and a lease in
turn; both wait until the acknowledgement is on disk.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count

import httpx
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from .apache_kafka import VERSION, KafkaUnavailable, apache_kafka, run_tool
from .broker_process import running_broker
from .measure import Comparison, in_turn, report
from .process_usage import cpu_seconds

PERFORMANCE = "org.apache.kafka.tools.ShareConsumerPerformance"
CONFIGS = "kafka.admin.ConfigCommand"
VALUE_BYTES = 1024
PARTITIONS = 3
TIMEOUT_S = 120.0
THROUGHPUT_GOAL, CPU_GOAL, QUEUE_GOAL = 1.0, 1.0, 0.8
# A result line has start, end, MB, MB/s, records/s, …
_RECORDS_PER_S = 4
_names = count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    name: str
    bootstrap: str
    pid: int


def fill(subject: Subject, records: int) -> str:
    """Return a new topic with ``records`` records of 1 KiB."""
    topic = f"shared-{next(_names)}"
    admin = AdminClient({"bootstrap.servers": subject.bootstrap, "log_level": "0"})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(TIMEOUT_S)
    producer = Producer(
        {"bootstrap.servers": subject.bootstrap, "log_level": "0", "queue.buffering.max.messages": 0}
    )
    producer.produce_batch(topic, [{"value": b"x" * VALUE_BYTES}] * records)
    if producer.flush(TIMEOUT_S):
        raise RuntimeError(f"{subject.name}: not all records were stored")
    return topic


def consume(subject: Subject, topic: str, records: int, threads: int) -> tuple[float, float]:
    """Take and accept all records of a topic.

    Return records per second, and per second of the broker's CPU time.
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
    before_s = cpu_seconds(subject.pid)
    done = run_tool(
        PERFORMANCE,
        *(*at, "--topic", topic, "--group", group, "--num-records", str(records)),
        *("--threads", str(threads), "--hide-header", "--timeout", "60000"),
        timeout_s=TIMEOUT_S,
    )
    used_s = cpu_seconds(subject.pid) - before_s
    figures = [line.split(",") for line in done.stdout.splitlines() if line.count(",") > _RECORDS_PER_S]
    if done.returncode or not figures:
        raise RuntimeError(f"{subject.name}: {done.stdout}{done.stderr}")
    return float(figures[-1][_RECORDS_PER_S]), records / used_s


def beside_kafka(records: int, rounds: int, threads: int) -> None:
    with ExitStack() as stack:
        broker = stack.enter_context(running_broker("--log-level", "warning"))
        kafka = stack.enter_context(
            apache_kafka(
                properties={
                    "share.coordinator.state.topic.replication.factor": "1",
                    "share.coordinator.state.topic.min.isr": "1",
                }
            )
        )
        subjects = (
            Subject(name="Stele", bootstrap=broker.kafka_bootstrap, pid=broker.pid),
            Subject(name="Apache Kafka", bootstrap=kafka.bootstrap, pid=kafka.pid),
        )
        # Once for warmth.
        results = [
            tuple(consume(subject, fill(subject, records), records, threads) for subject in subjects)
            for _ in range(rounds + 1)
        ][1:]
    for index, (what, goal) in enumerate(
        (("records/s", THROUGHPUT_GOAL), ("records per CPU second", CPU_GOAL))
    ):
        report(
            f"KafkaShareConsumer, {threads} in a group, {VALUE_BYTES} bytes",
            Comparison(
                ours=[ours[index] for ours, _ in results], yardstick=[theirs[index] for _, theirs in results]
            ),
            unit=what,
            yardstick=f"Apache Kafka {VERSION}",
            goal=goal,
        )


def take(http: httpx.Client, topic: str, records: int, at_once: int, *, is_shared: bool) -> float:
    """Poll and acknowledge over HTTP as a new group; return records per second."""
    group = f"http-{next(_names)}"
    path = f"/v1/groups/{group}/share" if is_shared else f"/v1/groups/{group}"
    token = "lock" if is_shared else "lease"
    taken = 0
    begun_s = time.perf_counter()
    while taken < records:
        polled = http.post(
            f"{path}/poll",
            json={"topics": [topic], "max_records": at_once, "from": "earliest", "wait_ms": 1000},
        ).json()
        taken += len(polled["records"])
        http.post(f"{path}/ack", json={token: polled[token]}).raise_for_status()
    return taken / (time.perf_counter() - begun_s)


def beside_leases(records: int, rounds: int) -> None:
    with running_broker("--log-level", "warning") as broker, httpx.Client(base_url=broker.http_url) as http:
        subject = Subject(name="Stele", bootstrap=broker.kafka_bootstrap, pid=broker.pid)
        topic = fill(subject, records)
        for at_once in (500, 1):
            some = records if at_once > 1 else min(records, 300)

            def rate(is_shared: bool, some: int = some, at_once: int = at_once) -> Callable[[], float]:
                return lambda: take(http, topic, some, at_once, is_shared=is_shared)

            report(
                f"HTTP, poll and acknowledge, {at_once} at once",
                in_turn(rate(is_shared=True), rate(is_shared=False), rounds=rounds),
                unit="records/s",
                yardstick="leases",
                goal=QUEUE_GOAL,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=200_000, help="records per round (default: 200,000)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2, help="share consumers in the group (default: 2)")
    options = parser.parse_args()
    beside_leases(min(options.records, 20_000), options.rounds)
    try:
        beside_kafka(options.records, options.rounds, options.threads)
    except KafkaUnavailable as error:
        print(f"not compared with Apache Kafka: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
