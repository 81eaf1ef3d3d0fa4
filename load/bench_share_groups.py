"""Measure share groups beside Apache Kafka.

Kafka's ``ShareConsumerPerformance`` takes and accepts all records of a topic, from Stele and from Apache Kafka in
turn.
"""

from __future__ import annotations

from itertools import count

from .apache_kafka import run_tool
from .harness import Benchmark, Rounds
from .kafka_clients import TIMEOUT_S, make_topic, produce
from .results import at_least, at_most
from .subjects import Subject, stele_and_kafka

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


def measure_kafka(bench: Benchmark, number_of_rounds: int, records: int, threads: int) -> None:
    rounds = Rounds()
    with stele_and_kafka() as subjects:
        # Once for warmth.
        for number in range(number_of_rounds + 1):
            bench.say(f"round {number} of {number_of_rounds}")
            for subject in subjects:
                topic = make_topic(subject, partitions=PARTITIONS)
                produce(subject, topic, partitions=PARTITIONS, records=records, size=VALUE_BYTES)
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


def main() -> None:
    bench = Benchmark(__file__, __doc__, rounds=3)
    bench.add("--records", type=int, default=200_000, quick=10_000, help="per round (default: 200,000)")
    bench.parser.add_argument("--threads", type=int, default=2, help="share consumers (default: 2)")
    with bench.run() as options:
        measure_kafka(bench, options.rounds, options.records, options.threads)


if __name__ == "__main__":
    main()
