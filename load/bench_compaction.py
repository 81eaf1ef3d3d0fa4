"""Compare a compaction pass with Apache Kafka's cleaner: same log, same machine, in turn.

Both brokers get the same record batches, so they clean the same log. The topic becomes compacted once it is filled;
then a prober sends single records to a second topic, and Metadata requests, one at a time, until the cleaner's
checkpoint has reached the active segment. The same probes before the pass are the yardstick of what it costs others.
Apache Kafka's cleaner has its defaults, except that both brokers look for work every 200 ms.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import statistics
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import httpx
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic
from stele.broker_process import BrokerProcess
from stele.wire.compression import Compression
from stele.wire.record_batch import BatchBuilder

from . import kafka_frames as frames
from .apache_kafka import HEAP, VERSION, ApacheKafka, KafkaUnavailable
from .measure import Comparison, percentile
from .process_usage import cpu_seconds, resident_mb

RECORDS, KEYS, ROUNDS = 3_000_000, 300_000, 3
VALUE_BYTES = 100
RECORDS_PER_BATCH = 500
SEGMENT_BYTES = 64 * 1024 * 1024
BACKOFF_MS = 200
BESIDE = "beside"
IDLE_S = 5.0
TIMEOUT_S = 1800.0
# Requests under way while the topic is filled.
_PIPELINED = 8
_PROBE_PAUSE_S = 0.001
_SAMPLE_S = 0.1
_POOL_BYTES = 1 << 20
_KAFKA_PASS = re.compile(r"([\d.,]+) MB of log processed in ([\d.,]+) seconds")
_numbers = count()


@dataclass(slots=True)
class Probes:
    """Milliseconds until the answer: of a produced record with ``acks=1``, and of Metadata without topics."""

    produce_ms: list[float] = field(default_factory=list[float])
    metadata_ms: list[float] = field(default_factory=list[float])

    def of(self, what: str, share: float) -> float:
        """The percentile ``share`` of ``what``, "produce" or "Metadata"."""
        return percentile(self.produce_ms if what == "produce" else self.metadata_ms, share)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One pass.

    ``seconds`` and ``read_bytes`` as the broker reports them; memory in MB.
    """

    seconds: float
    read_bytes: float
    cpu_s: float
    kept_bytes: int
    extra_mb: float
    peak_mb: float
    idle: Probes
    beside: Probes


class Subject(ABC):
    """A broker under measurement, running."""

    name: str

    @property
    @abstractmethod
    def address(self) -> tuple[str, int]: ...
    @property
    @abstractmethod
    def pid(self) -> int: ...
    @property
    @abstractmethod
    def data_dir(self) -> Path: ...

    @abstractmethod
    def last_pass(self) -> tuple[float, float]:
        """Seconds and bytes read of the last pass."""


class SteleSubject(Subject):
    name = "Stele"

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        environment = {
            "STELE_LOG_CLEANER_BACKOFF_MS": str(BACKOFF_MS),
            "STELE_LOG_CHECKPOINT_INTERVAL_MS": "1000",
        }
        arguments = ["--log-level", "warning"]
        self._broker = BrokerProcess(directory / "data", arguments=arguments, environment=environment)
        self._broker.start()
        stack.callback(self._broker.stop)
        self._read_bytes = 0

    @property
    def address(self) -> tuple[str, int]:
        return self._broker.host, self._broker.kafka_port

    @property
    def pid(self) -> int:
        return self._broker.pid

    @property
    def data_dir(self) -> Path:
        return self._broker.data_dir

    def last_pass(self) -> tuple[float, float]:
        counts = httpx.get(f"{self._broker.http_url}/v1/overview").raise_for_status().json()["compaction"]
        before, self._read_bytes = self._read_bytes, counts["bytes_read"]
        return counts["last_pass_took_ms"] / 1000, self._read_bytes - before


class KafkaSubject(Subject):
    name = f"Kafka {VERSION}"

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._kafka = ApacheKafka(directory, properties={"log.cleaner.backoff.ms": str(BACKOFF_MS)})
        self._data_dir = directory / "data"
        self._kafka.start()
        stack.callback(self._kafka.stop)

    @property
    def address(self) -> tuple[str, int]:
        return self._kafka.host, self._kafka.port

    @property
    def pid(self) -> int:
        return self._kafka.pid

    @property
    def data_dir(self) -> Path:
        return self._data_dir

    def last_pass(self) -> tuple[float, float]:
        *_, (megabytes, seconds) = _KAFKA_PASS.findall(self._kafka.log_path.read_text(errors="replace"))
        return float(seconds.replace(",", "")), float(megabytes.replace(",", "")) * 2**20


# ── the log ──


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


def fill(subject: Subject, topic: str, corpus: Path, sizes: list[int]) -> None:
    with corpus.open("rb") as source, frames.connect(*subject.address, timeout_s=TIMEOUT_S) as connection:
        unanswered = 0
        for size in sizes:
            connection.sendall(frames.produce_request(topic, source.read(size), acks=1))
            unanswered += 1
            if unanswered == _PIPELINED:
                frames.check_produce(frames.receive(connection))
                unanswered -= 1
        for _ in range(unanswered):
            frames.check_produce(frames.receive(connection))


def bases(partition: Path) -> list[int]:
    return sorted(int(path.stem) for path in partition.glob("*.log"))


def cleaned_until(subject: Subject, topic: str) -> int:
    """The cleaner's checkpoint of partition 0; both brokers write the same layout."""
    path = subject.data_dir / "cleaner-offset-checkpoint"
    for line in path.read_text().splitlines() if path.exists() else ():
        if line.startswith(f"{topic} 0 "):
            return int(line.rpartition(" ")[2])
    return 0


# ── the work ──


def probe(subject: Subject, probes: Probes) -> Iterator[None]:
    """One probe of each kind per step, one at a time."""
    batch = BatchBuilder()
    batch.append(timestamp_ms=int(time.time() * 1000), key=b"k", value=b"x" * VALUE_BYTES)
    produce = frames.produce_request(BESIDE, bytes(batch.build()), acks=1)
    metadata = frames.metadata_request([])
    with frames.connect(*subject.address) as connection:
        while True:
            for request, times in ((produce, probes.produce_ms), (metadata, probes.metadata_ms)):
                begun = time.perf_counter()
                connection.sendall(request)
                frames.receive(connection)
                times.append((time.perf_counter() - begun) * 1000)
                time.sleep(_PROBE_PAUSE_S)
            yield


def measure(subject: Subject, corpus: Path, sizes: list[int]) -> Pass:
    """Fill a topic, probe without and beside a pass, and delete it."""
    admin: Any = AdminClient({"bootstrap.servers": "{}:{}".format(*subject.address), "log_level": "0"})
    topic = f"compacted-{next(_numbers)}"
    configs = {"segment.bytes": str(SEGMENT_BYTES), "compression.type": "producer"}
    admin.create_topics([NewTopic(topic, 1, 1, config=configs)])[topic].result(TIMEOUT_S)
    partition = subject.data_dir / f"{topic}-0"
    try:
        frames.make_topic(*subject.address, topic)
        fill(subject, topic, corpus, sizes)
        os.sync()
        idle, beside = Probes(), Probes()
        steps, end_s = probe(subject, idle), time.perf_counter() + IDLE_S
        while time.perf_counter() < end_s:
            next(steps)
        active, idle_mb, idle_cpu_s = bases(partition)[-1], resident_mb(subject.pid), cpu_seconds(subject.pid)
        policy = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[policy])
        for altered in admin.incremental_alter_configs([resource]).values():
            altered.result(TIMEOUT_S)
        peak_mb, steps = idle_mb, probe(subject, beside)
        deadline_s, sampled_s = time.perf_counter() + TIMEOUT_S, 0.0
        while True:
            next(steps)
            now_s = time.perf_counter()
            if now_s - sampled_s < _SAMPLE_S:
                continue
            sampled_s, peak_mb = now_s, max(peak_mb, resident_mb(subject.pid))
            if cleaned_until(subject, topic) >= active:
                break
            if now_s > deadline_s:
                raise TimeoutError(f"{subject.name} has not compacted {partition} in {TIMEOUT_S:g} s")
        cpu_s = cpu_seconds(subject.pid) - idle_cpu_s
        # Both report a pass a moment after its checkpoint.
        time.sleep(1.0)
        seconds, read_bytes = subject.last_pass()
        kept = sum(path.stat().st_size for path in partition.glob("*.log") if int(path.stem) < active)
    finally:
        admin.delete_topics([topic])[topic].result(TIMEOUT_S)
    return Pass(
        seconds=seconds,
        read_bytes=read_bytes,
        cpu_s=cpu_s,
        kept_bytes=kept,
        extra_mb=peak_mb - idle_mb,
        peak_mb=peak_mb,
        idle=idle,
        beside=beside,
    )


# ── the report ──


def print_passes(passes: dict[str, list[Pass]], records: int, log_bytes: int) -> None:
    """Print a row per figure: each broker's median, and the median ratio of the rounds."""
    share = records / log_bytes

    def row(what: str, unit: str, figures: dict[str, list[float]]) -> None:
        shown = "".join(f" {statistics.median(values):,.2f} |" for values in figures.values())
        ratio = ""
        if len(figures) == 2:
            comparison = Comparison(ours=figures["Stele"], yardstick=figures[KafkaSubject.name])
            low, high = min(comparison.ratios), max(comparison.ratios)
            ratio = f" {comparison.ratio:.2f} × ({low:.2f}–{high:.2f})"
        print(f"| {what}, {unit} |{shown}{ratio} |", flush=True)

    names = list(passes)
    print(f"| what | {' | '.join(names)} | ratio (rounds) |")
    print(f"|---|{'---|' * (len(names) + 1)}")
    row("cleaned", "MB/s", {n: [p.read_bytes / p.seconds / 1e6 for p in passes[n]] for n in names})
    row(
        "cleaned",
        "1,000 records/s",
        {n: [p.read_bytes * share / p.seconds / 1e3 for p in passes[n]] for n in names},
    )
    row("CPU of the broker during the pass", "s", {n: [p.cpu_s for p in passes[n]] for n in names})
    row("what remains", "MB", {n: [p.kept_bytes / 1e6 for p in passes[n]] for n in names})
    row("peak memory above the idle broker's", "MB", {n: [p.extra_mb for p in passes[n]] for n in names})
    row("peak memory", "MB", {n: [p.peak_mb for p in passes[n]] for n in names})
    for what in ("produce", "Metadata"):
        for label, level in (("p50", 0.5), ("p99", 0.99)):
            without = {n: [p.idle.of(what, level) for p in passes[n]] for n in names}
            beside = {n: [p.beside.of(what, level) for p in passes[n]] for n in names}
            row(f"{label} of {what} without a pass", "ms", without)
            row(f"{label} of {what} beside the pass", "ms", beside)
            for name in names:
                cost = Comparison(ours=beside[name], yardstick=without[name])
                low, high = min(cost.ratios), max(cost.ratios)
                blanks = " |" * len(names)
                print(f"| … beside / without, {name} |{blanks} {cost.ratio:.2f} × ({low:.2f}–{high:.2f}) |")


def main() -> None:
    parser = argparse.ArgumentParser(description="A compaction pass, beside Apache Kafka's.")
    parser.add_argument("--records", type=int, default=RECORDS)
    parser.add_argument("--keys", type=int, default=KEYS)
    parser.add_argument("--codec", choices=[codec.name.lower() for codec in Compression], default="none")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--quick", action="store_true", help="less of everything: to see that it works")
    parser.add_argument("--only", choices=["stele", "kafka"])
    options = parser.parse_args()
    if options.quick:
        options.records, options.keys, options.rounds = 1_200_000, 120_000, 1
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-compaction-")))
        corpus = scratch / "corpus"
        codec = Compression[options.codec.upper()]
        sizes = write_corpus(corpus, records=options.records, keys=options.keys, codec=codec)
        subjects: list[Subject] = []
        if options.only != "kafka":
            subjects.append(SteleSubject(scratch / "stele", stack))
        if options.only != "stele":
            try:
                subjects.append(KafkaSubject(scratch / "kafka", stack))
            except KafkaUnavailable as missing:
                print(f"without Apache Kafka: {missing}")
        for subject in subjects:
            frames.make_topic(*subject.address, BESIDE)
        passes: dict[str, list[Pass]] = {subject.name: [] for subject in subjects}
        for number in range(options.rounds):
            for subject in subjects:
                print(
                    f"… round {number + 1} of {options.rounds}, {subject.name}", file=sys.stderr, flush=True
                )
                done = measure(subject, corpus, sizes)
                print(
                    f"  {done.seconds:.1f} s for {done.read_bytes / 1e6:.0f} MB", file=sys.stderr, flush=True
                )
                passes[subject.name].append(done)
    print(
        f"compaction of {options.records:,} records of {VALUE_BYTES} B over {options.keys:,} keys,"
        f" {sum(sizes) / 1e6:,.0f} MB, codec {options.codec}, segment.bytes {SEGMENT_BYTES >> 20} MiB;"
        f" {options.rounds} rounds in turn, {os.cpu_count()} cores, Apache Kafka with a heap of {HEAP}\n"
    )
    print_passes(passes, options.records, sum(sizes))


if __name__ == "__main__":
    main()
