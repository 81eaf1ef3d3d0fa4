"""Runs the calls on a broker, normalizes what must differ between two, and compares."""

from __future__ import annotations

import difflib
import json
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, cast

from confluent_kafka import Consumer
from stele.testing import run_broker

from load.apache_kafka import apache_kafka
from tests.conformance.kafka_tools.accepted import ACCEPTED, Accepted
from tests.conformance.kafka_tools.calls import FILES, TOOLS, Call, Member, Step
from tests.conformance.kafka_tools.shell import Output, ToolShell

# One node as Stele is one: the same number, the same groups, a heap that leaves room for the tools.
KAFKA_PROPERTIES = {"node.id": "1", "offsets.topic.num.partitions": "50"}
KAFKA_HEAP = "512m"
STELE_SETTINGS = {"STELE_BROKER_ID": "1", "STELE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0"}
JOIN_TIMEOUT_S = 60.0
# Kafka applies changes within a fraction of a second, on a busy machine within some.
_SETTLE_S = 0.5
_READS_MAX = 20

Progress = Callable[[str], None]
# What a line becomes. A stack trace says where in the tool something happened, not what; a verifiable consumer
# tells of its end from two threads, in either order.
_DROPPED = re.compile(r'^\s+at |^\s+\.\.\. \d+ more$|"name": ?"shutdown_(?:requested|complete)"')
_REPLACED = [
    (re.compile(pattern), by)
    for pattern, by in (
        (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "UUID"),
        (r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\]", "[TIME]"),
        (r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.:,]\d{3}Z?", "TIME"),
        (r"(?<=TopicId: )[\w-]{22}", "TOPIC-ID"),
        (r"(?<=Cluster ID: )[\w-]{22}", "CLUSTER-ID"),
        (r"(?<=ClusterId:)(\s+)[\w-]{22}", "CLUSTER-ID"),
        (r"(?<=\"timestamp\":)\d+", "TIME"),
        (r'"/[^"]+/data"', '"DIRECTORY"'),
        (r"(?<=logDir )\S+/data\b", "DIRECTORY"),
        (r'(?<="topicId": ")[^"]+', "TOPIC-ID"),
        (r"\b1[789]\d{11}\b", "TIME"),
        # The times of a batch's records are in it as differences, longer or shorter by how fast they were sent.
        (r'(?<="size": )[1-9]\d*', "SIZE"),
        (r"(?<=CONTROLLER://127\.0\.0\.1:)\d+", "PORT"),
        (r'("avg_throughput": )[\d.]+', r"\1SPEED"),
        (r"( records sent), .*", r"\1, SPEED"),
        (r"(TIME, TIME, [\d.]+), [\d.]+, (\d+), .*", r"\1, SPEED, \2, SPEED"),
        (r"(?<=Member )[\w-]{22}(?= with epoch)", "MEMBER-ID"),
        (r"correlation id \d+", "correlation id N"),
        (r"adminclient-\d+", "adminclient-N"),
        (r"console-(consumer|producer|share-consumer)-\d+", r"console-\1-N"),
        (r"(?:perf|test)-consumer-\d+", "consumer-N"),
    )
]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call answered, after normalization; one line each, marked by its stream."""

    call: Call
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """One call whose answers differ: the lines that only one of the two has."""

    number: int
    call: Call
    kafka: tuple[str, ...]
    stele: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"[{self.number}] {self.call.text}"]
        lines += [f"  - {line}" for line in self.kafka]
        lines += [f"  + {line}" for line in self.stele]
        return "\n".join(lines)


def normalize(text: str, hidden: Sequence[tuple[str, str]]) -> list[str]:
    """The lines of ``text`` without what differs between any two runs; ``hidden`` are words and what they become."""
    lines: list[str] = []
    for line in chain.from_iterable(map(_unfold, text.splitlines())):
        if _DROPPED.search(line):
            continue
        for word, by in hidden:
            line = line.replace(word, by)
        for pattern, by in _REPLACED:
            line = pattern.sub(by, line)
        # Columns are as wide as their widest cell, and that may be an id.
        lines.append(re.sub(r"[ \t]+", " ", line).rstrip())
    return lines


def _unfold(line: str) -> list[str]:
    """One line for each innermost object of a line of JSON, in an order of its own; any other line as it is."""
    if not line.startswith("{"):
        return [line]
    decoder = json.JSONDecoder()
    lines: list[str] = []
    while line:
        try:
            value, end = decoder.raw_decode(line)
        except ValueError:
            return [line]
        lines += sorted(_leaves(value))
        line = line[end:]
    return lines


def _leaves(value: Any, path: str = "") -> Iterator[str]:
    members: list[tuple[str, Any]] = []
    if isinstance(value, dict):
        members = list(cast("dict[str, Any]", value).items())
    elif isinstance(value, list):
        members = [("", each) for each in cast("list[Any]", value)]
    if not any(isinstance(each, dict) for _, each in members) and not (
        isinstance(value, dict) and any(isinstance(each, list) for _, each in members)
    ):
        yield f"{path} {json.dumps(value, ensure_ascii=False)}"
        return
    for name, each in members:
        yield from _leaves(each, f"{path}.{name}" if name else path)


def as_lines(output: Output, hidden: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    lines = [f"out: {line.lstrip()}" for line in normalize(output.out, hidden)]
    lines += [f"err: {line.lstrip()}" for line in normalize(output.err, hidden)]
    return (*lines, f"exit code {output.code}")


class Runner:
    """Carries out steps on the broker at ``bootstrap``, which nobody has used before."""

    def __init__(self, broker: str, bootstrap: str, progress: Progress | None) -> None:
        self._broker = broker
        self._bootstrap = bootstrap
        self._progress = progress
        self._members: dict[str, Consumer] = {}
        self._directory = tempfile.TemporaryDirectory(prefix="kafka-tools-")
        self._files = files = self._directory.name
        for name, text in FILES.items():
            (Path(files) / name).write_text(text)
        port = bootstrap.rpartition(":")[2]
        self._hidden = [
            (bootstrap, "BOOTSTRAP"),
            (f":{port}", ":PORT"),
            (f" {port} ", " PORT "),
            (files, "FILES"),
        ]
        self._shell = ToolShell()

    def close(self) -> None:
        for consumer in self._members.values():
            consumer.close()
        self._shell.close()
        self._directory.cleanup()

    def change(self, member: Member) -> None:
        _change(member, self._members, self._bootstrap)

    def call(self, call: Call) -> Answer:
        class_name, option = TOOLS[call.tool]
        given = [argument.replace("{files}", self._files) for argument in call.arguments]
        to_broker = [option, self._bootstrap]
        arguments = [*given, *to_broker] if call.tool == "cluster" else [*to_broker, *given]
        began_s = time.monotonic()
        output = self._shell.run(class_name, arguments, stdin=call.stdin)
        if self._progress:
            self._progress(f"{self._broker} {time.monotonic() - began_s:5.1f} s  {call.text}")
        return Answer(call, as_lines(output, self._hidden))


def _change(member: Member, members: dict[str, Consumer], bootstrap: str) -> None:
    if member.change == "leaves":
        members.pop(member.group).close()
        return
    config = {"bootstrap.servers": bootstrap, "group.id": member.group, "client.id": "a-member"}
    members[member.group] = consumer = Consumer({**config, "enable.auto.commit": False})
    consumer.subscribe([member.topic])
    deadline_s = time.monotonic() + JOIN_TIMEOUT_S
    while not consumer.assignment():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"the group {member.group} has not assigned {member.topic}")
        consumer.poll(0.1)


def compare(
    kafka: Sequence[Answer], stele: Sequence[Answer], accepted: Sequence[Accepted] = ()
) -> tuple[list[Difference], set[Accepted]]:
    """The calls whose answers differ beyond what is accepted, and which of ``accepted`` were needed.

    Both are answers to the same steps.
    """
    differences: list[Difference] = []
    needed: set[Accepted] = set()
    for number, (theirs, ours) in enumerate(zip(kafka, stele, strict=True)):
        assert theirs.call == ours.call
        kafka_lines, stele_lines = list(theirs.lines), list(ours.lines)
        for one in accepted:
            if kafka_lines != stele_lines and one.covers(theirs.call.text):
                masked = one.masked(kafka_lines), one.masked(stele_lines)
                if masked != (kafka_lines, stele_lines):
                    needed.add(one)
                kafka_lines, stele_lines = masked
        only_kafka, only_stele = _only(kafka_lines, stele_lines)
        for one in accepted:
            if (only_kafka or only_stele) and one.covers(theirs.call.text):
                rest = (
                    one.without(only_kafka, pattern=one.kafka),
                    one.without(only_stele, pattern=one.stele),
                )
                if rest != (only_kafka, only_stele):
                    needed.add(one)
                only_kafka, only_stele = rest
        if only_kafka or only_stele:
            differences.append(Difference(number, theirs.call, tuple(only_kafka), tuple(only_stele)))
    return differences, needed


def _only(kafka: Sequence[str], stele: Sequence[str]) -> tuple[list[str], list[str]]:
    only_kafka: list[str] = []
    only_stele: list[str] = []
    matcher = difflib.SequenceMatcher(a=kafka, b=stele, autojunk=False)
    for kind, begin, end, our_begin, our_end in matcher.get_opcodes():
        if kind != "equal":
            only_kafka += kafka[begin:end]
            only_stele += stele[our_begin:our_end]
    return only_kafka, only_stele


def run_both(steps: Sequence[Step], *, progress: Progress | None = None) -> tuple[list[Answer], list[Answer]]:
    """Start Apache Kafka and Stele, and carry out each step on both at the same time; their answers.

    A change in Kafka is visible some time after it is answered, so a call that only
    reads is repeated on both while the answers differ beyond what is accepted.

    Raises:
        KafkaUnavailable: there is no JDK, or the jars could not be had.
    """
    answers: list[tuple[Answer, Answer]] = []
    with (
        apache_kafka(properties=KAFKA_PROPERTIES, heap=KAFKA_HEAP) as kafka,
        run_broker(environment=STELE_SETTINGS) as stele,
        ThreadPoolExecutor(2) as pool,
        closing(Runner("kafka", kafka.bootstrap, progress)) as theirs,
        closing(Runner("stele", stele.kafka_bootstrap, progress)) as ours,
    ):
        for step in steps:
            if isinstance(step, Member):
                changes = [pool.submit(runner.change, step) for runner in (theirs, ours)]
                for change in changes:
                    change.result()
            else:
                answers.append(_settled(step, theirs, ours, pool))
    return [kafkas for kafkas, _ in answers], [steles for _, steles in answers]


def _settled(call: Call, theirs: Runner, ours: Runner, pool: ThreadPoolExecutor) -> tuple[Answer, Answer]:
    tries = _READS_MAX if call.only_reads else 1
    while True:
        tries -= 1
        pending = pool.submit(theirs.call, call), pool.submit(ours.call, call)
        kafka, stele = pending[0].result(), pending[1].result()
        if not tries or not compare([kafka], [stele], ACCEPTED)[0]:
            return kafka, stele
        time.sleep(_SETTLE_S)
