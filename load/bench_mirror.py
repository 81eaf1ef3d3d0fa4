"""Measure mirrors: how fast a topic of Apache Kafka is copied, and what it costs.

The yardstick is MirrorMaker, which produces the same topic to the same kind of broker again. Both are timed from the
moment when the first records are there, so that the start of a JVM does not count. CPU time is that of the target and of
what copies; that of the source is left out. The p99 of single produces beside a copy is compared with the one before it.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from stele import Client, UnknownTopicError
from stele.broker_process import BrokerProcess

from .apache_kafka import ApacheKafka, apache_kafka, java
from .bench_fairness import single_produces_ms
from .harness import Benchmark, percentile
from .mirror_maker import MAIN, write_properties
from .process_usage import apart, cpu_seconds
from .results import Measure, at_least, at_most
from .subjects import quiet_broker

TOPIC = "orders"
PARTITIONS = 4
RECORD_BYTES = 1000
_INSTALL = Path(__file__).parents[1] / "tests" / "conformance" / "drivers" / "mirror-maker" / "install.sh"
_LIBS = Path(__file__).parents[1] / ".conformance" / "mirror-maker" / "lib"
_TIMEOUT_S = 600.0
_LOOK_S = 0.05


class Copied(NamedTuple):
    """How a copy went: its rate in MB/s, and CPU time per MB in ms."""

    rate: float
    cpu_ms: float


def make_topic(kafka: ApacheKafka) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, config={"retention.ms": "-1"})])[TOPIC].result()


def fill(kafka: ApacheKafka, records: int) -> None:
    """Write the topic, as a producer with usual settings does."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 20, "batch.size": 131_072})
    value = bytes(range(250)) * (RECORD_BYTES // 250)
    for number in range(records):
        while True:
            try:
                producer.produce(TOPIC, value, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(120) == 0


def end_of(client: Client) -> int:
    try:
        return sum(client.list_offset(TOPIC, number) or 0 for number in range(client.partition_count(TOPIC)))
    except UnknownTopicError:
        return 0


def timed(broker: BrokerProcess, records: int, cpu_s: Callable[[], float]) -> Copied:
    """Wait until all records are there, and return how that went."""
    with Client(broker.binary_url) as client:
        give_up_s = time.perf_counter() + _TIMEOUT_S
        while not (first := end_of(client)):
            assert time.perf_counter() < give_up_s, "nothing was copied"
            time.sleep(_LOOK_S)
        start_s, start_cpu_s = time.perf_counter(), cpu_s()
        while (end := end_of(client)) < records:
            assert time.perf_counter() < give_up_s, f"{end} of {records} records were copied"
            time.sleep(_LOOK_S)
        megabytes = (end - first) * RECORD_BYTES / 1e6
        seconds, cpu = time.perf_counter() - start_s, cpu_s() - start_cpu_s
        return Copied(megabytes / max(seconds, 1e-3), 1000 * cpu / max(megabytes, 1e-3))


def by_mirror(kafka: ApacheKafka, records: int) -> Copied:
    with quiet_broker() as broker:
        body = {"from": kafka.bootstrap, "topics": TOPIC}
        httpx.put(f"{broker.http_url}/v1/mirrors/bench", json=body).raise_for_status()
        # The process of the mirror is a child of the broker.
        return timed(broker, records, lambda: cpu_seconds(broker.pid))


def beside_a_mirror(kafka: ApacheKafka, records: int, samples: int, rate: int | None) -> tuple[float, float]:
    """Return the p99 of single produces in ms while records are copied, and before that.

    The broker shares a core with the process of the mirror, and the client comes before the source on the other one,
    which would be another machine's.
    """
    with (
        quiet_broker() as broker,
        Client(broker.binary_url) as client,
        apart([broker.pid], [kafka.pid]),
    ):
        single_produces_ms(client, samples)
        before_ms = percentile(single_produces_ms(client, samples), 0.99)
        body = {"from": kafka.bootstrap, "topics": TOPIC, "rate": rate}
        httpx.put(f"{broker.http_url}/v1/mirrors/bench", json=body).raise_for_status()
        while not end_of(client):
            time.sleep(_LOOK_S)
        taken_ms: list[float] = []
        while len(taken_ms) < samples and end_of(client) < records:
            taken_ms += single_produces_ms(client, 50)
        return percentile(taken_ms, 0.99), before_ms


@contextmanager
def mirror_maker(source: str, target: str) -> Generator[int]:
    """Run MirrorMaker; yield its process id."""
    subprocess.run(["bash", str(_INSTALL)], check=True)
    others = {
        "tasks.max": str(PARTITIONS),
        "emit.heartbeats.enabled": "false",
        "refresh.topics.interval.seconds": "1",
    }
    with tempfile.TemporaryDirectory(prefix="mirror-maker-") as scratch:
        configuration = Path(scratch) / "mirror-maker.properties"
        write_properties(configuration, source, target, TOPIC, others)
        command = [java(), "-Xmx1g", "-XX:+UseG1GC", "-Dlog4j2.level=ERROR", "-cp", f"{_LIBS}/*", MAIN]
        process = subprocess.Popen([*command, str(configuration)], stdout=subprocess.DEVNULL)
        try:
            yield process.pid
        finally:
            process.kill()
            process.wait()


def by_mirror_maker(kafka: ApacheKafka, records: int) -> Copied:
    with quiet_broker() as broker, mirror_maker(kafka.bootstrap, broker.kafka_bootstrap) as pid:
        return timed(broker, records, lambda: cpu_seconds(broker.pid) + cpu_seconds(pid))


def main() -> None:
    bench = Benchmark(__file__, __doc__, rounds=3)
    bench.add("--megabytes", type=int, default=1000, quick=100, help="of the topic (default: 1000)")
    bench.add("--samples", type=int, default=2000, quick=200, help="produces of which a p99 is")
    bench.add(
        "--rate", type=int, default=None, help="limit of the copy beside which they are, in bytes per second"
    )
    bench.add("--only-beside", action="store_true", default=False, help="measure only these")
    with bench.run() as options, apache_kafka() as kafka:
        records = options.megabytes * 1_000_000 // RECORD_BYTES
        make_topic(kafka)
        bench.say(f"writing {options.megabytes} MB")
        fill(kafka, records)
        ours: list[Copied] = []
        theirs: list[Copied] = []
        beside: list[tuple[float, float]] = []
        for number in range(options.rounds):
            bench.say(f"round {number + 1} of {options.rounds}")
            beside.append(beside_a_mirror(kafka, records, options.samples, options.rate))
            if options.only_beside:
                continue
            ours.append(by_mirror(kafka, records))
            theirs.append(by_mirror_maker(kafka, records))
        bench.row(
            "p99 of single produces beside a copy, and before it",
            baseline="the same broker before",
            value=Measure(
                unit="ms",
                stele=[one for one, _ in beside],
                baseline=[one for _, one in beside],
                goal=at_most(1.5),
            ),
        )
        if options.only_beside:
            return
        bench.row(
            f"a copy of {options.megabytes} MB in {PARTITIONS} partitions, records of 1 kB",
            table="work",
            baseline="MirrorMaker",
            measures={
                "rate": Measure(
                    unit="MB/s",
                    stele=[one.rate for one in ours],
                    baseline=[one.rate for one in theirs],
                    goal=at_least(2),
                ),
                "CPU": Measure(
                    unit="ms/MB",
                    stele=[one.cpu_ms for one in ours],
                    baseline=[one.cpu_ms for one in theirs],
                    goal=at_most(0.5),
                ),
            },
        )


if __name__ == "__main__":
    main()
