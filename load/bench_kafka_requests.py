"""Compare the cost of a request.

Stele and Apache Kafka under Kafka's own Java performance tools.

``ProducerPerformance`` sends one record per request with up to five requests in flight, ``ConsumerPerformance`` reads
the topic back. Both brokers are up, and only one of them has work at a time. For ``acks=all``, Apache Kafka's topics
have ``flush.messages=1``, because Stele syncs before it answers. Broker CPU per Produce is that of the whole run of
the tool by all its records, the warm-up included; CPU per record consumed includes joining the tool's group.
"""

from __future__ import annotations

import argparse
import os
import re
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from .apache_kafka import VERSION, KafkaUnavailable, run_tool
from .bench_kafka_throughput import (
    ACKS,
    Acks,
    Figure,
    KafkaSubject,
    Results,
    SteleSubject,
    Subject,
    cpu_seconds,
    in_alternating_order,
    new_topic,
    print_table,
    say,
    stored_in,
)

IN_FLIGHT = 5
RATE_GOAL, CPU_GOAL = 1.0, 1.0
TOOL_TIMEOUT_S = 300.0

_PRODUCER_TOOL = "org.apache.kafka.tools.ProducerPerformance"
_CONSUMER_TOOL = "org.apache.kafka.tools.ConsumerPerformance"
_PRODUCED = re.compile(r"^(\d+) records sent, ([\d.]+) records/sec .*99\.9th\.$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much is measured.

    Records by their size, rounds, and two shares of the records.
    """

    records: dict[int, int]
    rounds: int
    # Of the records of a run: those that warm up the tool before it measures.
    warm_share: float = 0.2
    # Kafka syncs per record with acks=all, so a run of all records would take minutes.
    synced_share: float = 0.25


FULL = Scale(records={100: 30_000, 1024: 30_000, 10_240: 15_000}, rounds=3)
QUICK = Scale(records={100: 8_000, 1024: 8_000, 10_240: 4_000}, rounds=1)


class ToolError(RuntimeError):
    """A tool failed or printed something unexpected; the message has what it printed."""


def _run(class_name: str, *arguments: str) -> str:
    """Return what a tool printed.

    Raises:
        ToolError: it did not exit with 0.
    """
    done = run_tool(class_name, *arguments, timeout_s=TOOL_TIMEOUT_S)
    if done.returncode != 0:
        raise ToolError(f"{class_name} exited with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def producer_properties(subject: Subject, acks: Acks) -> list[str]:
    """Return the properties of a producer that sends one record per request."""
    return [
        f"bootstrap.servers={subject.bootstrap}",
        f"acks={acks}",
        # A batch is full with its first record, and a request holds one batch per partition.
        "batch.size=1",
        "linger.ms=0",
        f"max.in.flight.requests.per.connection={IN_FLIGHT}",
        "enable.idempotence=false",
    ]


def produce(subject: Subject, topic: str, *, acks: Acks, size: int, records: int, warm_records: int) -> float:
    """Produce with ``ProducerPerformance``.

    Return records per second after the warm-up.

    Raises:
        ToolError: the tool failed.
        RuntimeError: not all records are in the topic.
    """
    printed = _run(
        _PRODUCER_TOOL,
        *("--topic", topic, "--num-records", str(records), "--record-size", str(size)),
        *("--throughput", "-1", "--warmup-records", str(warm_records)),
        # All of them after one option: a second one would replace the first.
        *("--command-property", *producer_properties(subject, acks)),
    )
    rate = parse_produce_rate(printed)
    stored = stored_in(subject, topic, 1)
    if stored != records:
        raise RuntimeError(f"{subject.name}: {stored} of {records} records stored")
    return rate


def parse_produce_rate(printed: str) -> float:
    """Return the rate in the last summary of ``ProducerPerformance``.

    It excludes the warm-up.

    Raises:
        ToolError: there is no summary line.
    """
    summaries = _PRODUCED.findall(printed)
    if not summaries:
        raise ToolError(f"{_PRODUCER_TOOL} printed no summary:\n{printed}")
    return float(summaries[-1][1])


def consume(subject: Subject, topic: str, *, records: int) -> float:
    """Read the topic with ``ConsumerPerformance``; return records per second.

    Raises:
        ToolError: the tool failed or did not read all records.
    """
    printed = _run(
        _CONSUMER_TOOL,
        *("--bootstrap-server", subject.bootstrap, "--topic", topic, "--num-records", str(records)),
    )
    consumed, rate = parse_consume_summary(printed)
    if consumed < records:
        raise ToolError(f"{subject.name}: {consumed:.0f} of {records} records consumed:\n{printed}")
    return rate


def parse_consume_summary(printed: str) -> tuple[float, float]:
    """Return the records consumed, and their rate without the rebalance.

    Raises:
        ToolError: the table is missing.
    """
    lines = printed.splitlines()
    for head, values in pairwise(lines):
        if head.startswith("start.time"):
            names = [name.strip() for name in head.split(",")]
            row = dict(zip(names, (value.strip() for value in values.split(",")), strict=True))
            return float(row["data.consumed.in.nMsg"]), float(row["fetch.nMsg.sec"])
    raise ToolError(f"{_CONSUMER_TOOL} printed no table:\n{printed}")


def measure_round(subjects: Sequence[Subject], scale: Scale, results: Results) -> None:
    """Measure each figure once, for one broker after the other."""
    for size, count in scale.records.items():
        for acks in ACKS:
            records = count if acks == "1" else int(count * scale.synced_share)
            for subject in subjects:
                _produce_and_consume(subject, size, acks, records, scale, results)


def _produce_and_consume(
    subject: Subject, size: int, acks: Acks, records: int, scale: Scale, results: Results
) -> None:
    def add(what: str, unit: str, value: float, *, goal: float, at_most: bool = False) -> None:
        results.add(Figure(f"{what}, {size:,} B", unit, goal, at_most=at_most), subject, value)

    with new_topic(subject, partitions=1, acks=acks) as topic:
        # Earlier writes must not be waited for in this measurement.
        os.sync()
        before = cpu_seconds(subject.pid)
        warm_records = int(records * scale.warm_share)
        rate = produce(subject, topic, acks=acks, size=size, records=records, warm_records=warm_records)
        used_s = cpu_seconds(subject.pid) - before
        add(f"produce, acks={acks}", "requests/s", rate, goal=RATE_GOAL)
        add(f"broker CPU per Produce, acks={acks}", "µs", used_s / records * 1e6, goal=CPU_GOAL, at_most=True)
        if acks == "1":
            before = cpu_seconds(subject.pid)
            rate = consume(subject, topic, records=records)
            used_s = cpu_seconds(subject.pid) - before
            add("consume batches of one", "records/s", rate, goal=RATE_GOAL)
            add("broker CPU per record consumed", "µs", used_s / records * 1e6, goal=CPU_GOAL, at_most=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description="The cost of a request, under Apache Kafka's Java performance tools."
    )
    parser.add_argument("--quick", action="store_true", help="less of everything: to see that it works")
    parser.add_argument("--only", choices=["stele", "kafka"], help="figures of one of them, without ratios")
    parser.add_argument("--rounds", type=int, help=f"instead of {FULL.rounds}")
    options = parser.parse_args()
    scale = QUICK if options.quick else FULL
    rounds: int = options.rounds or scale.rounds
    kinds: dict[str, type[SteleSubject | KafkaSubject]] = {"stele": SteleSubject, "kafka": KafkaSubject}
    chosen = [kind for name, kind in kinds.items() if options.only in (None, name)]
    results = Results()
    try:
        with tempfile.TemporaryDirectory(prefix="stele-") as temporary, ExitStack() as stack:
            subjects: list[Subject] = []
            for number, kind in enumerate(chosen):
                subject = kind(Path(temporary) / str(number))
                stack.callback(subject.stop)
                subject.start()
                subjects.append(subject)
            say("warming up")
            measure_round(subjects, scale, Results())
            for number in range(rounds):
                say(f"round {number + 1} of {rounds}")
                measure_round(in_alternating_order(subjects, number), scale, results)
    except KafkaUnavailable as missing:
        print(f"not measured: {missing}")
        return
    counts = ", ".join(f"{records:,} of {size:,} B" for size, records in scale.records.items())
    print(
        f"Java client {VERSION}, one record per request, {IN_FLIGHT} in flight, one partition: records {counts};"
        f" medians of {rounds} rounds in turn, {os.cpu_count()} cores"
    )
    print(f"acks=all: {scale.synced_share:g} of these records")
    print_table(results, [kind.name for kind in chosen])


if __name__ == "__main__":
    main()
