"""Measure a compaction pass beside Apache Kafka's on the same log.

Both get the same batches of one corpus, so they clean the same log. The topic becomes compacted once it is filled;
then a prober sends single records to a second topic, one at a time, until the cleaner's checkpoint has reached the
active segment. The same probes before the pass are the yardstick of what it costs others. Apache Kafka's cleaner has
its defaults, except that both brokers look for work every 200 ms.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from stele.broker_process import BrokerProcess
from stele.wire.compression import Compression
from stele.wire.record_batch import BatchBuilder

from . import kafka_frames as frames
from .apache_kafka import ApacheKafka
from .harness import Benchmark, Rounds, percentile
from .kafka_clients import new_topic
from .process_usage import resident_mb
from .results import Goal, at_least, at_most
from .subjects import Subject, stele_and_kafka

VALUE_BYTES = 100
RECORDS_PER_BATCH = 500
SEGMENT_BYTES = 64 * 1024 * 1024
BACKOFF_MS = "200"
BESIDE = "beside"
IDLE_S = 5.0
TIMEOUT_S = 600.0
# Requests under way while the topic is filled.
_PIPELINED = 8
_PROBE_PAUSE_S = 0.001
_SAMPLE_S = 0.1
_POOL_BYTES = 1 << 20
_KAFKA_PASS = re.compile(r"([\d.,]+) MB of log processed in ([\d.,]+) seconds")
# The name of a row, its measure, unit and goal; the last ones are on no page.
_ROWS: tuple[tuple[str, str, str, Goal, str], ...] = (
    ("compaction: rate", "rate", "MB/s", at_least(1.0), "work"),
    ("compaction: CPU time", "cpu", "s", at_most(1.0), "work"),
    ("compaction: p99 of produces meanwhile", "p99", "ms", at_most(1.0), "work"),
    ("compaction: peak memory", "memory", "MB", at_most(1.0), "memory"),
    ("what remains of the log", "kept", "MB", at_most(1.0), ""),
    ("p99 of single produces before it", "p99 before", "ms", at_most(1.0), ""),
)


def log_of(broker: BrokerProcess | ApacheKafka) -> Path:
    """The directory of the partitions; both brokers write the same layout."""
    return broker.data_dir if isinstance(broker, BrokerProcess) else broker.log_path.with_name("data")


def last_pass(subject: Subject, before_bytes: int) -> tuple[float, float]:
    """Seconds and bytes read of the last pass, as the broker reports them."""
    broker = subject.brokers[0]
    if isinstance(broker, BrokerProcess):
        counts = _compaction(broker)
        return counts["last_pass_took_ms"] / 1000, counts["bytes_read"] - before_bytes
    *_, (megabytes, seconds) = _KAFKA_PASS.findall(broker.log_path.read_text(errors="replace"))
    return float(seconds.replace(",", "")), float(megabytes.replace(",", "")) * 2**20


def _compaction(broker: BrokerProcess) -> dict[str, int]:
    return httpx.get(f"{broker.http_url}/v1/overview").raise_for_status().json()["compaction"]


def write_corpus(path: Path, *, records: int, keys: int, codec: Compression) -> list[int]:
    """Write batches of random keys to ``path``; returns their sizes."""
    rng = random.Random(1)
    pool = rng.randbytes(_POOL_BYTES // 2).hex().encode()
    first_ms = int(time.time() * 1000) - records // 100
    sizes: list[int] = []
    with path.open("wb") as out:
        for first in range(0, records, RECORDS_PER_BATCH):
            builder = BatchBuilder(compression=codec)
            for number in range(first, min(first + RECORDS_PER_BATCH, records)):
                at = rng.randrange(len(pool) - VALUE_BYTES)
                builder.append(
                    timestamp_ms=first_ms + number // 100,
                    key=b"key-%08d" % rng.randrange(keys),
                    value=pool[at : at + VALUE_BYTES],
                )
            batch = builder.build()
            out.write(batch)
            sizes.append(len(batch))
    return sizes


def fill(subject: Subject, topic: str, corpus: Path, sizes: Sequence[int]) -> None:
    with corpus.open("rb") as source, frames.connect(*subject.address, timeout_s=TIMEOUT_S) as connection:
        for number, size in enumerate(sizes):
            connection.sendall(frames.produce_request(topic, source.read(size), acks=1))
            if number >= _PIPELINED:
                frames.check_produce(frames.receive(connection))
        for _ in range(min(_PIPELINED, len(sizes))):
            frames.check_produce(frames.receive(connection))


class Prober:
    """A connection that produces single records, one at a time."""

    def __init__(self, subject: Subject) -> None:
        self._connection = frames.connect(*subject.address)
        self._request = frames.produce_request(BESIDE, frames.batch_of(1, VALUE_BYTES), acks=1)
        self.times_ms: list[float] = []

    def once(self) -> None:
        begun_s = time.perf_counter()
        self._connection.sendall(self._request)
        frames.receive(self._connection)
        self.times_ms.append((time.perf_counter() - begun_s) * 1000)
        time.sleep(_PROBE_PAUSE_S)

    def p99_ms(self) -> float:
        """Return the 99th percentile of the times since the last call."""
        times_ms, self.times_ms = self.times_ms, []
        return percentile(times_ms, 0.99)

    def close(self) -> None:
        self._connection.close()


def make_compacted(subject: Subject, topic: str) -> None:
    admin: Any = AdminClient({"bootstrap.servers": subject.bootstrap, "log_level": "0"})
    policy = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[policy])
    for altered in admin.incremental_alter_configs([resource]).values():
        altered.result(TIMEOUT_S)


def cleaned_until(subject: Subject, topic: str) -> int:
    """Return the cleaner's checkpoint of partition 0."""
    path = log_of(subject.brokers[0]) / "cleaner-offset-checkpoint"
    for line in path.read_text().splitlines() if path.exists() else ():
        if line.startswith(f"{topic} 0 "):
            return int(line.rpartition(" ")[2])
    return 0


def measure(subject: Subject, corpus: Path, sizes: Sequence[int]) -> dict[str, float]:
    """Fill a topic, probe before and beside a pass, and delete it."""
    configs = {"segment.bytes": str(SEGMENT_BYTES), "compression.type": "producer"}
    broker = subject.brokers[0]
    prober = Prober(subject)
    with new_topic(subject, configs=configs) as topic:
        fill(subject, topic, corpus, sizes)
        os.sync()
        end_s = time.perf_counter() + IDLE_S
        while time.perf_counter() < end_s:
            prober.once()
        p99_before_ms = prober.p99_ms()
        bases = sorted(int(path.stem) for path in (log_of(broker) / f"{topic}-0").glob("*.log"))
        before_s, peak_mb = subject.cpu_s(), subject.memory_mb()
        before_bytes = _compaction(broker)["bytes_read"] if isinstance(broker, BrokerProcess) else 0
        make_compacted(subject, topic)
        deadline_s, sampled_s = time.perf_counter() + TIMEOUT_S, 0.0
        while True:
            prober.once()
            now_s = time.perf_counter()
            if now_s - sampled_s < _SAMPLE_S:
                continue
            sampled_s, peak_mb = now_s, max(peak_mb, resident_mb(subject.pid))
            if cleaned_until(subject, topic) >= bases[-1]:
                break
            if now_s > deadline_s:
                raise TimeoutError(f"{subject.name} has not compacted {topic} in {TIMEOUT_S:g} s")
        cpu_s, p99_ms = subject.cpu_s() - before_s, prober.p99_ms()
        prober.close()
        # Both report a pass a moment after its checkpoint.
        time.sleep(1.0)
        seconds, read_bytes = last_pass(subject, before_bytes)
        closed = [
            path for path in (log_of(broker) / f"{topic}-0").glob("*.log") if int(path.stem) < bases[-1]
        ]
        return {
            "rate": read_bytes / seconds / 1e6,
            "cpu": cpu_s,
            "p99": p99_ms,
            "memory": peak_mb,
            "kept": sum(path.stat().st_size for path in closed) / 1e6,
            "p99 before": p99_before_ms,
        }


def main() -> None:
    bench = Benchmark(__file__, __doc__, rounds=2)
    bench.add("--records", type=int, default=3_000_000, quick=1_000_000, help="default: 3,000,000")
    bench.add("--keys", type=int, default=300_000, quick=100_000, help="default: 300,000")
    codecs = [codec.name.lower() for codec in Compression]
    bench.parser.add_argument("--codec", choices=codecs, default="none")
    bench.parser.add_argument("--only", choices=["stele", "kafka"])
    environment = {"STELE_LOG_CLEANER_BACKOFF_MS": BACKOFF_MS, "STELE_LOG_CHECKPOINT_INTERVAL_MS": "1000"}
    properties = {"log.cleaner.backoff.ms": BACKOFF_MS}
    with (
        bench.run() as options,
        TemporaryDirectory(prefix="bench-compaction-") as scratch,
        stele_and_kafka(options.only, environment=environment, properties=properties) as subjects,
    ):
        corpus = Path(scratch) / "corpus"
        codec = Compression[options.codec.upper()]
        sizes = write_corpus(corpus, records=options.records, keys=options.keys, codec=codec)
        rounds = Rounds()
        for subject in subjects:
            frames.make_topic(*subject.address, BESIDE)
        for number in range(options.rounds):
            for subject in subjects:
                bench.say(f"round {number + 1} of {options.rounds}, {subject.name}")
                for name, value in measure(subject, corpus, sizes).items():
                    rounds.add("pass", name, value, is_stele=subject.is_stele)
        for what, name, unit, goal, table in _ROWS:
            value = rounds.measure("pass", name, unit, goal)
            bench.row(what, table=table, baseline=f"Kafka, {sum(sizes) / 1e9:.1f} GB", value=value)


if __name__ == "__main__":
    main()
