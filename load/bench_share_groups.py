"""Measure share groups beside Apache Kafka, and through a broker that does not coordinate the group.

Kafka's ``ShareConsumerPerformance`` takes and accepts all records of a topic, from Stele and from Apache Kafka in
turn. ``--only hop``: two brokers share a PostgreSQL server with inline storage, and the same tool takes the records of
a partition through the broker that Metadata shows as its leader, which coordinates the group or does not.
"""

from __future__ import annotations

from itertools import count

import httpx
from confluent_kafka.admin import AdminClient

from app.cluster.group_shards import lease_of_group

from .apache_kafka import run_tool
from .harness import Benchmark, Rounds, in_turn
from .kafka_clients import CLIENT, TIMEOUT_S, make_topic, produce
from .results import at_least, at_most
from .subjects import SteleCluster, Subject, stele_and_kafka, stele_cluster

PERFORMANCE = "org.apache.kafka.tools.ShareConsumerPerformance"
CONFIGS = "kafka.admin.ConfigCommand"
VALUE_BYTES = 1024
PARTITIONS = 3
# A result line has start, end, MB, MB/s, records/s, …
_RECORDS_PER_S = 4
_groups = (f"takers-{number}" for number in count(1))


def take(subject: Subject, topic: str, group: str, records: int, threads: int) -> tuple[float, float]:
    """Take and accept all records of a topic as a new group.

    Return records per second, and the brokers' microseconds of CPU time per record.
    """
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
        timeout_s=TIMEOUT_S,
    )
    used_s = subject.cpu_s() - before_s
    figures = [line.split(",") for line in done.stdout.splitlines() if line.count(",") > _RECORDS_PER_S]
    if done.returncode or not figures:
        raise RuntimeError(f"{subject.name}: {done.stdout}{done.stderr}")
    return float(figures[-1][_RECORDS_PER_S]), used_s / records * 1e6


def filled_topic(subject: Subject, partitions: int, records: int) -> str:
    topic = make_topic(subject, partitions=partitions)
    produce(subject, topic, partitions=partitions, records=records, size=VALUE_BYTES)
    return topic


def measure_kafka(bench: Benchmark, number_of_rounds: int, records: int, threads: int) -> None:
    rounds = Rounds()
    with stele_and_kafka() as subjects:
        # Once for warmth.
        for number in range(number_of_rounds + 1):
            bench.say(f"round {number} of {number_of_rounds}")
            for subject in subjects:
                topic = filled_topic(subject, PARTITIONS, records)
                rate, cpu_us = take(subject, topic, next(_groups), records, threads)
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


def group_of(cluster: SteleCluster, topic: str, *, is_at_leader: bool) -> str:
    """Return a new group whose coordinator is the leader of partition 0 that Metadata shows, or another broker."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **CLIENT})
    leader = admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions[0].leader
    while True:
        leases = httpx.get(f"{cluster.members[0].http_url}/v1/cluster").raise_for_status().json()["leases"]
        for _ in range(100):
            group = next(_groups)
            coordinator = leases.get(lease_of_group(group), {}).get("broker_id")
            if coordinator is not None and (coordinator == leader) == is_at_leader:
                return group


def measure_hop(bench: Benchmark, rounds: int, records: int) -> None:
    with stele_cluster(brokers=2, store="inline", linger_ms=5) as cluster:
        topic = filled_topic(cluster, 1, records)

        def cpu_us(*, is_at_leader: bool) -> float:
            return take(cluster, topic, group_of(cluster, topic, is_at_leader=is_at_leader), records, 1)[1]

        value = in_turn(
            lambda: cpu_us(is_at_leader=False),
            lambda: cpu_us(is_at_leader=True),
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
    bench.parser.add_argument("--threads", type=int, default=2, help="share consumers (default: 2)")
    with bench.run() as options:
        if options.only != "kafka":
            measure_hop(bench, options.rounds, options.records)
        if options.only != "hop":
            measure_kafka(bench, options.rounds, options.records, options.threads)


if __name__ == "__main__":
    main()
