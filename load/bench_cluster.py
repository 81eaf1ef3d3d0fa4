"""Measure shared storage beside a single broker and a replicated Apache Kafka.

All of them run on this machine.

``python -m load.bench_cluster`` takes some ten minutes. In the parts throughput and latency all subjects are up at
the same time, and get the same work from the same client in turn: with three nodes of Apache Kafka among them
(``kafka``), ratios to these are printed. With several brokers on a machine of two cores, a second one adds little.
``--full`` measures more records, all lingers and 10,000 partitions; ``--only`` names parts, ``--setup`` subjects.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from uuid import UUID

import httpx

from app.cluster.group_shards import SHARD_LEASES
from app.cluster.leaders import ranked
from app.cluster.membership import Member

from . import pausing
from .apache_kafka import KafkaStartError, KafkaUnavailable
from .cluster_comparison import compare, print_goal
from .cluster_failover import measure_failover
from .cluster_partitions import measure_many_partitions
from .cluster_subjects import Subject, embedded_broker, kafka_cluster, stele_cluster
from .cluster_work import TIMEOUT_S, SteadyProducer, new_topic, produce
from .measure import percentile
from .object_servers import STORES, VERSITYGW, VersitygwMissing
from .postgres_server import PostgresMissing
from .seaweedfs import SeaweedMissing

PARTS = ("throughput", "latency", "kafka", "stores", "metadata", "failover", "restart", "pause", "partitions")
_IN_DEFAULT = tuple(part for part in PARTS if part != "partitions")
_LOOK_S = 0.02
METADATA_GOAL = 0.0005


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The size of a run. ``setups``: brokers, store and linger."""

    records: int
    latency_s: float
    setups: tuple[tuple[int, str, int], ...]
    partitions: int


_QUICK = Scale(
    records=60_000,
    latency_s=5,
    setups=(
        (1, "inline", 5),
        (3, "inline", 5),
        (1, "seaweedfs", 5),
        (1, "seaweedfs", 250),
        (3, "seaweedfs", 25),
    ),
    partitions=2_000,
)
_FULL = Scale(
    records=300_000,
    latency_s=20,
    setups=(
        *((brokers, "inline", 5) for brokers in (1, 2, 3)),
        *((brokers, "seaweedfs", linger) for brokers in (1, 2, 3) for linger in (5, 25, 250)),
    ),
    partitions=10_000,
)


def measure_metadata(scale: Scale) -> None:
    """A slow partition leaves the most rows per byte; merging must make up for it."""
    with stele_cluster(brokers=1, store="seaweedfs", linger_ms=25) as cluster:
        topic = new_topic(cluster)
        produce(cluster, topic, scale.records // 2)
        producer = SteadyProducer(cluster, topic)
        time.sleep(scale.latency_s)
        producer.end()
        before, size_before = cluster.database(), cluster.metadata_bytes()
        cluster.merge()
        after, size_after = cluster.database(), cluster.metadata_bytes()
        gigabytes = before.log_bytes / 1e9
        print(f"{cluster.name}, {before.log_bytes / 1e6:,.0f} MB of records")
        for what, use, size in (("before", before, size_before), ("after", after, size_after)):
            print(
                f"  {what} merging: {use.objects:,} objects ({use.objects / gigabytes:,.0f} per GB),"
                f" {use.runs:,} rows ({use.runs / gigabytes:,.0f} per GB),"
                f" {size / 1024:,.0f} KiB of metadata, {100 * size / use.log_bytes:.4f} % of the bytes",
                flush=True,
            )
        print_goal("of the bytes are metadata", size_after / after.log_bytes, METADATA_GOAL, at_most=True)


def measure_restart(scale: Scale) -> None:
    """Restart three brokers one after the other, as an upgrade does."""
    with stele_cluster(brokers=3, store="inline", linger_ms=5) as cluster:
        producer = SteadyProducer(cluster, new_topic(cluster))
        time.sleep(scale.latency_s / 2)
        begun = time.perf_counter()
        quiet_ms = producer.latencies_ms()
        for broker in cluster.brokers:
            broker.restart()
            time.sleep(3)
        ended = time.perf_counter()
        producer.end()
        during_ms = [latency for at, latency in producer.acks if begun <= at <= ended]
        print(
            f"{cluster.name}, restarted one after the other within {ended - begun:.0f} s\n"
            f"  ack before: p50 {percentile(quiet_ms, 0.5):.1f} ms, p99 {percentile(quiet_ms, 0.99):.1f} ms\n"
            f"  ack during: p50 {percentile(during_ms, 0.5):.1f} ms, p99 {percentile(during_ms, 0.99):.1f} ms,"
            f" slowest {max(during_ms):.0f} ms, {producer.failed} failed",
            flush=True,
        )


def measure_pause(scale: Scale) -> None:
    """Pause a broker until another has its groups, and wait until they are back."""
    del scale
    with stele_cluster(brokers=2, store="inline", linger_ms=5) as cluster:
        first, paused = cluster.brokers

        def shards(broker_id: int) -> int:
            leases = httpx.get(f"{first.http_url}/v1/cluster", timeout=TIMEOUT_S).json()["leases"]
            return sum(
                lease["broker_id"] == broker_id for name, lease in leases.items() if name in SHARD_LEASES
            )

        def wait_for(own: int, others: int) -> float:
            begun = time.perf_counter()
            while (shards(2), shards(1)) != (own, others):
                time.sleep(_LOOK_S)
            return time.perf_counter() - begun

        # The broker that joins gets its share.
        own = sum(ranked(name.encode(), _members(2))[0].broker_id == 2 for name in SHARD_LEASES)
        wait_for(own, len(SHARD_LEASES) - own)
        with pausing.paused(paused.pid):
            taken_s = wait_for(0, len(SHARD_LEASES))
        back_s = wait_for(own, len(SHARD_LEASES) - own)
        print(
            f"{cluster.name}, one paused\n  the other coordinates its {own} shards of groups"
            f" after {taken_s:.1f} s; after the pause they are back in {back_s:.1f} s",
            flush=True,
        )


def _members(brokers: int) -> list[Member]:
    return [
        Member(broker_id=number, incarnation=UUID(int=number), rack=None, endpoints={})
        for number in range(1, brokers + 1)
    ]


def measure_in_turn(scale: Scale, parts: Sequence[str], *, rounds: int, heap: str) -> None:
    """Compare clusters of Stele, a single broker of it, and Apache Kafka."""
    with ExitStack() as stack:
        subjects: list[Subject] = []
        yardsticks: list[Subject] = []
        if "kafka" in parts:
            try:
                nodes = stack.enter_context(kafka_cluster(3, heap))
                yardsticks += [nodes.flushing(is_flushing) for is_flushing in (False, True)]
            except (KafkaUnavailable, KafkaStartError) as error:
                print(f"Apache Kafka is not measured: {error}")
        for brokers, store, linger_ms in scale.setups:
            subjects.append(
                stack.enter_context(stele_cluster(brokers=brokers, store=store, linger_ms=linger_ms))
            )
        subjects.append(stack.enter_context(embedded_broker()))
        compare(
            [*subjects, *yardsticks],
            yardsticks,
            records=scale.records,
            # Apache Kafka alone is measured for throughput and latency, too.
            is_throughput="throughput" in parts or "latency" not in parts,
            latency_s=scale.latency_s if "latency" in parts or "throughput" not in parts else 0.0,
            rounds=rounds,
        )


def measure_stores(scale: Scale, *, rounds: int) -> None:
    """Compare what a broker does with several object stores on this machine."""
    with ExitStack() as stack:
        subjects: list[Subject] = []
        for store in STORES:
            if store == "versitygw" and not VERSITYGW.exists():
                print(str(VersitygwMissing()))
                continue
            options = ("", ",payload=unsigned") if store in ("seaweedfs", "versitygw") else ("",)
            subjects += [
                stack.enter_context(stele_cluster(brokers=1, store=f"{store}{option}", linger_ms=5))
                for option in options
            ]
        compare(subjects, [], records=scale.records, is_throughput=True, latency_s=0.0, rounds=rounds)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--full", action="store_true", help="more records, all lingers, 10,000 partitions")
    parser.add_argument("--only", choices=PARTS, action="append", help="a part; may be repeated")
    parser.add_argument(
        "--setup",
        type=_setup,
        action="append",
        metavar="BROKERS:STORE:LINGER_MS",
        help=f"a cluster, such as 3:inline:5; the store is inline, {', '.join(STORES[:-1])} or {STORES[-1]}",
    )
    parser.add_argument("--records", type=int, help="records of 1 KB per measurement")
    parser.add_argument("--rounds", type=int, default=3, help="of all subjects in turn (default: 3)")
    parser.add_argument("--heap", default="512m", help="of each node of Apache Kafka (default: 512m)")
    options = parser.parse_args()
    scale = _FULL if options.full else _QUICK
    scale = replace(
        scale, records=options.records or scale.records, setups=tuple(options.setup or scale.setups)
    )
    parts: Sequence[str] = options.only or (PARTS if options.full else _IN_DEFAULT)
    print(f"load of the machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    if {"throughput", "latency", "kafka"}.intersection(parts):
        measure_in_turn(scale, parts, rounds=options.rounds, heap=options.heap)
    if "stores" in parts:
        measure_stores(scale, rounds=options.rounds)
    measures: dict[str, Callable[[Scale], None]] = {
        "metadata": measure_metadata,
        "failover": lambda _: measure_failover(),
        "restart": measure_restart,
        "pause": measure_pause,
        "partitions": lambda scale: measure_many_partitions(scale.partitions),
    }
    for part, measure in measures.items():
        if part in parts:
            measure(scale)
    print(f"load of the machine after: {os.getloadavg()[0]:.1f}", flush=True)


def _setup(text: str) -> tuple[int, str, int]:
    brokers, store, linger_ms = text.split(":")
    if store.partition(",")[0] not in ("inline", *STORES):
        raise ValueError(store)
    return int(brokers), store, int(linger_ms)


if __name__ == "__main__":
    try:
        main()
    except (PostgresMissing, SeaweedMissing, VersitygwMissing) as missing:
        raise SystemExit(str(missing)) from None
