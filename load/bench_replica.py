"""Measure what a replica in a bucket costs: produce throughput, latency, CPU time, lag, and reads of old records.

The yardstick is the same broker without a replica, or with a reader of records on the disk. The bucket is SeaweedFS on this
machine, which takes its CPU time from the same cores, but for the latency of single records: there the brokers have a
core of their own. It syncs each object; with ``--bucket-in /dev/shm`` those syncs
do not delay the broker's own, as with a bucket elsewhere.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

import httpx
from confluent_kafka import OFFSET_END
from stele.broker_process import BrokerProcess, run_broker

from .harness import Benchmark, Rounds, in_turn, percentile
from .kafka_clients import At, SteadyProducer, consume, make_consumer, make_topic, produce
from .process_usage import apart, process_cpu_s
from .results import Measure, at_least, at_most
from .seaweedfs import seaweedfs_server
from .subjects import QUIET, THIS, Subject, environment_of, stele_subject

RECORD_BYTES = 1000
MB = 1_000_000
PER_S = 1000
# SeaweedFS takes any, and obstore wants one.
_ANY_KEY = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any"}
_TIERED = {
    "remote.storage.enable": "true",
    "segment.bytes": str(8 * MB),
    "local.retention.bytes": str(8 * MB),
}
_OLD, _LOCAL = "in the bucket", "on the disk"


@contextmanager
def brokers(bucket_in: Path | None) -> Generator[tuple[Subject, Subject, int]]:
    """One broker with a replica, one without, and the process id of the bucket."""
    with (
        TemporaryDirectory(prefix="stele-replica-") as folder,
        seaweedfs_server(parent=bucket_in) as (url, server),
    ):
        environment = {**environment_of(THIS), "STELE_LOG_RETENTION_CHECK_INTERVAL_MS": "500"}
        with_replica = {**environment, "STELE_REPLICATE_TO": url, **_ANY_KEY}
        with (
            run_broker(Path(folder) / "with", arguments=QUIET, environment=with_replica) as replicating,
            run_broker(Path(folder) / "without", arguments=QUIET, environment=environment) as plain,
        ):
            yield stele_subject(replicating), stele_subject(plain), server.pid


def broker_of(subject: Subject) -> BrokerProcess:
    (broker,) = subject.brokers
    assert isinstance(broker, BrokerProcess)
    return broker


def write(subject: Subject, topic: str, megabytes: int) -> tuple[float, float]:
    """Produce records with acks=all; return MB per second, and the broker's CPU ms per MB."""
    cpu_s = process_cpu_s(subject.pid)
    rate = produce(
        subject, topic, partitions=1, records=megabytes * MB // RECORD_BYTES, size=RECORD_BYTES, linger_ms=5
    )
    return rate * RECORD_BYTES / MB, (process_cpu_s(subject.pid) - cpu_s) * 1000 / megabytes


def ack_p99_ms(subject: Subject, seconds: float) -> float:
    producer = SteadyProducer(subject, make_topic(subject), partitions=1, per_s=PER_S)
    time.sleep(seconds)
    producer.end()
    return percentile(producer.latencies_ms(), 0.99)


def tail_p99_ms(subject: Subject, seconds: float) -> float:
    """Return the 99th percentile of the time from the produce of a record to its consumer."""
    topic = make_topic(subject)
    consumer = make_consumer(subject, topic, 1, OFFSET_END)
    producer = SteadyProducer(subject, topic, partitions=1, per_s=PER_S)
    taken: list[float] = []
    end_s = time.perf_counter() + seconds
    while time.perf_counter() < end_s:
        # One at a time: it waits for as many as it is asked for.
        message = consumer.poll(0.1)
        if message is not None:
            taken.append((time.perf_counter_ns() - int(message.value() or 0)) / 1e6)
    producer.end()
    consumer.close()
    return percentile(taken, 0.99)


def measure_produce(
    bench: Benchmark, bucket_in: Path | None, rounds: int, megabytes: int, seconds: float
) -> None:
    baseline = "the same broker without a replica"
    with brokers(bucket_in) as (with_replica, without, bucket):
        # Before the bursts, whose upload goes on after them.
        with apart([with_replica.pid, without.pid], [bucket]):
            single = in_turn(
                lambda: ack_p99_ms(with_replica, seconds),
                lambda: ack_p99_ms(without, seconds),
                rounds=rounds,
                unit="ms",
                goal=at_most(1.3),
            )
        bench.row(
            f"single records of 1 kB, {PER_S} per second, acks=all",
            baseline=baseline,
            measures={"p99": single},
        )
        found, what = Rounds(), "a burst of records of 1 kB, acks=all"
        sides = (with_replica, without)
        for subject in sides:
            write(subject, make_topic(subject), megabytes // 4)
        for number in range(rounds):
            for side in (0, 1) if number % 2 else (1, 0):
                rate, cpu_ms = write(sides[side], make_topic(sides[side]), megabytes)
                found.add(what, "rate", rate, is_stele=not side)
                found.add(what, "CPU", cpu_ms, is_stele=not side)
    bench.row(
        what,
        baseline=baseline,
        measures={
            "rate": found.measure(what, "rate", "MB/s", at_least(0.9)),
            "CPU": found.measure(what, "CPU", "ms/MB"),
        },
    )


def measure_lag(bench: Benchmark, bucket_in: Path | None, rounds: int, seconds: float, per_s: int) -> None:
    lags: list[float] = []
    with brokers(bucket_in) as (subject, *_):
        broker, topic = broker_of(subject), make_topic(subject)
        for _ in range(rounds):
            over, worst = threading.Event(), 0.0
            writer = threading.Thread(target=write_steadily, args=(subject, topic, per_s, over))
            writer.start()
            end_s = time.perf_counter() + seconds
            while time.perf_counter() < end_s:
                worst = max(worst, httpx.get(f"{broker.http_url}/v1/replica").json()["lag_seconds"])
                time.sleep(0.1)
            over.set()
            writer.join()
            lags.append(worst)
    bench.row(
        f"the longest lag at {per_s} MB/s",
        value=Measure(unit="s", stele=lags),
        baseline="none",
    )


def write_steadily(subject: Subject, topic: str, per_s: int, over: threading.Event) -> None:
    begun_s, written = time.perf_counter(), 0
    while not over.is_set():
        write(subject, topic, 10)
        written += 10
        time.sleep(max(0, begun_s + written / per_s - time.perf_counter()))


def measure_tail(
    bench: Benchmark, bucket_in: Path | None, rounds: int, megabytes: int, seconds: float
) -> None:
    p99_ms: dict[str, list[float]] = {"": [], _OLD: [], _LOCAL: []}
    rates: dict[str, list[float]] = {_OLD: [], _LOCAL: []}
    # A process of its own: with a thread of this one, the consumer at the end would wait for Python.
    reader = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
    with brokers(bucket_in) as (subject, *_), reader:
        topics = {_OLD: make_topic(subject, configs=_TIERED), _LOCAL: make_topic(subject)}
        for topic in topics.values():
            write(subject, topic, megabytes)
        await_tiered(broker_of(subject), topics[_OLD])
        at, records = At(subject.name, subject.bootstrap), megabytes * MB // RECORD_BYTES
        for _ in range(rounds):
            p99_ms[""].append(tail_p99_ms(subject, seconds))
            for where, topic in topics.items():
                reading = reader.submit(read_until, at, topic, records, time.monotonic() + seconds)
                p99_ms[where].append(tail_p99_ms(subject, seconds))
                rates[where].append(reading.result())
    what = f"from producer to consumer, beside a reader of {megabytes} MB"
    bench.row(
        f"{what} in the bucket",
        baseline="beside a reader of as much on the disk",
        measures={
            "p99": Measure(unit="ms", stele=p99_ms[_OLD], baseline=p99_ms[_LOCAL], goal=at_most(1.5)),
            "read": Measure(unit="MB/s", stele=rates[_OLD], baseline=rates[_LOCAL]),
        },
    )
    bench.row(
        f"{what} on the disk",
        baseline="without a reader",
        measures={"p99": Measure(unit="ms", stele=p99_ms[_LOCAL], baseline=p99_ms[""])},
    )


def read_until(at: At, topic: str, records: int, end_s: float) -> float:
    """Read all of a topic again and again, until a time of ``time.monotonic``; return MB per second."""
    rates: list[float] = []
    while not rates or time.monotonic() < end_s:
        rates.append(consume(at, topic, partitions=1, records=records) * RECORD_BYTES / MB)
    return fmean(rates)


def await_tiered(broker: BrokerProcess, topic: str) -> None:
    """Wait until the disk has only the last segments of a topic."""
    while len(list((broker.data_dir / f"{topic}-0").glob("*.log"))) > 2:
        time.sleep(0.1)


def main() -> None:
    bench = Benchmark(__file__, __doc__, rounds=3)
    bench.add("--megabytes", type=int, default=200, quick=20, help="that are written, and of old records")
    bench.add("--seconds", type=float, default=5.0, quick=1.0, help="of a measurement of latency")
    bench.add("--per-s", type=int, default=50, quick=20, help="MB/s while the lag is measured")
    bench.parser.add_argument("--bucket-in", type=Path, metavar="DIR", help="a directory for SeaweedFS")
    bench.parser.add_argument("--only", choices=["produce", "lag", "tail"])
    with bench.run() as options:
        if options.only in (None, "produce"):
            measure_produce(bench, options.bucket_in, options.rounds, options.megabytes, options.seconds)
        if options.only in (None, "lag"):
            measure_lag(bench, options.bucket_in, options.rounds, options.seconds, options.per_s)
        if options.only in (None, "tail"):
            measure_tail(bench, options.bucket_in, options.rounds, options.megabytes, options.seconds)


if __name__ == "__main__":
    main()
