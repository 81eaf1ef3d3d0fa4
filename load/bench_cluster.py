"""Measure brokers with shared storage beside a single broker with its own disk, and beside a replicated Apache Kafka.

All subjects are up at the same time on this machine, and get the same work from the same client in turn: they take in
records of 1 KB, give them out, and acknowledge single records at a steady rate. With several brokers on a machine of
two cores, a second one adds little.
"""

from __future__ import annotations

import time
from contextlib import ExitStack

from .apache_kafka import KafkaUnavailable
from .harness import Benchmark, Rounds, percentile
from .kafka_clients import SteadyProducer, consume, make_topic, produce
from .results import Goal, at_least, at_most
from .subjects import SteleCluster, Subject, kafka_cluster, quiet_broker, stele_cluster, stele_subject

PARTITIONS = 6
VALUE_BYTES = 1024
ACKS_PER_S = 100
KAFKA_NODES = 3
# Brokers, store and linger.
SETUPS = ((1, "inline", 5), (3, "inline", 5), (1, "seaweedfs", 5), (1, "seaweedfs", 25), (3, "seaweedfs", 25))
_WARM_RECORDS = 10_000
# The client sends at once what comes within that.
_LINGER_MS = 5
_MEASURES: dict[str, tuple[str, Goal | None]] = {
    "in": ("/s", at_least(50_000, "stele")),
    "out": ("/s", None),
    "p50": ("ms", at_most(25, "stele")),
    "p99": ("ms", None),
    "cpu": ("µs", None),
    "wal": ("KB per object", None),
}


def measure(subject: Subject, records: int, seconds: float) -> dict[str, float]:
    """Return the figures of a subject once."""
    topic, before_s = make_topic(subject, partitions=PARTITIONS), subject.cpu_s()
    before = subject.database() if isinstance(subject, SteleCluster) else None
    in_per_s = produce(
        subject,
        topic,
        partitions=PARTITIONS,
        records=records,
        size=VALUE_BYTES,
        acks="all",
        linger_ms=_LINGER_MS,
        batch_size=1_000_000,
    )
    cpu_s = subject.cpu_s() - before_s
    wal: dict[str, float] = {}
    if before is not None and isinstance(subject, SteleCluster) and subject.store != "inline":
        after = subject.database()
        wal["wal"] = (after.wal_bytes - before.wal_bytes) / 1000 / max(1, after.objects - before.objects)
    out_per_s = consume(subject, topic, partitions=PARTITIONS, records=records)
    topic = make_topic(subject, partitions=PARTITIONS)
    producer = SteadyProducer(subject, topic, partitions=PARTITIONS, per_s=ACKS_PER_S)
    time.sleep(1)
    warm_s = time.perf_counter()
    time.sleep(seconds)
    producer.end()
    latencies_ms = producer.latencies_ms(warm_s)
    return {
        "in": in_per_s,
        "out": out_per_s,
        "p50": percentile(latencies_ms, 0.5),
        "p99": percentile(latencies_ms, 0.99),
        "cpu": cpu_s / records * 1e6,
        **wal,
    }


def main() -> None:
    bench = Benchmark(__file__, __doc__, rounds=2)
    bench.parser.add_argument(
        "--setup",
        type=_setup,
        action="append",
        metavar="BROKERS:STORE:LINGER_MS",
        help="a cluster, such as 3:inline:5; the store is inline or seaweedfs (may be repeated)",
    )
    bench.add("--records", type=int, default=60_000, quick=5_000, help="records of 1 KB per measurement")
    bench.add("--seconds", type=float, default=5.0, quick=1.0, help="of the steady rate (default: 5)")
    bench.parser.add_argument("--without-kafka", action="store_true", help="do not measure Apache Kafka")
    bench.parser.add_argument("--heap", default="512m", help="of each node of Apache Kafka (default: 512m)")
    with bench.run() as options, ExitStack() as stack:
        subjects: list[Subject] = []
        kafka: Subject | None = None
        if not options.without_kafka:
            try:
                kafka = stack.enter_context(kafka_cluster(KAFKA_NODES, options.heap))
            except KafkaUnavailable as error:
                bench.say(f"Apache Kafka is not measured: {error}")
        for brokers, store, linger_ms in options.setup or SETUPS:
            subjects.append(
                stack.enter_context(stele_cluster(brokers=brokers, store=store, linger_ms=linger_ms))
            )
        alone = stack.enter_context(quiet_broker())
        subjects.append(stele_subject(alone, "1 broker with its own disk"))
        everything = [*subjects, *([kafka] if kafka else [])]
        for subject in everything:
            warm = make_topic(subject, partitions=PARTITIONS)
            produce(subject, warm, partitions=PARTITIONS, records=_WARM_RECORDS, size=VALUE_BYTES, acks="all")
        rounds = Rounds()
        for number in range(options.rounds):
            bench.say(f"round {number + 1} of {options.rounds}")
            for subject in everything:
                for name, value in measure(subject, options.records, options.seconds).items():
                    for row in subjects if subject is kafka else [subject]:
                        rounds.add(row.name, name, value, is_stele=subject is not kafka)
        for subject in subjects:
            measures = {
                name: rounds.measure(subject.name, name, *how)
                for name, how in _MEASURES.items()
                if name in rounds.values[subject.name]
            }
            baseline = f"{KAFKA_NODES} nodes of Kafka that replicate" if kafka else ""
            bench.row(subject.name, table="cluster", baseline=baseline, measures=measures)


def _setup(text: str) -> tuple[int, str, int]:
    brokers, store, linger_ms = text.split(":")
    if store not in ("inline", "seaweedfs"):
        raise ValueError(store)
    return int(brokers), store, int(linger_ms)


if __name__ == "__main__":
    main()
