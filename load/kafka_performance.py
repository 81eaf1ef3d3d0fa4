"""Run Kafka's Java performance tools and read what they print."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from .apache_kafka import run_tool

TOOL_TIMEOUT_S = 300.0

_PRODUCER_TOOL = "org.apache.kafka.tools.ProducerPerformance"
_CONSUMER_TOOL = "org.apache.kafka.tools.ConsumerPerformance"
_PRODUCED = re.compile(
    r"^\d+ records sent, ([\d.]+) records/sec .* (\d+) ms 50th, .* (\d+) ms 99th, .*99\.9th\.$", re.MULTILINE
)
# The tools give whole milliseconds.
_BELOW_ONE_MS = 0.5


class ToolError(RuntimeError):
    """A tool failed or printed something unexpected; the message has what it printed."""


class Produced(NamedTuple):
    """Records per second, and milliseconds from ``send`` to the answer."""

    rate: float
    p50_ms: float
    p99_ms: float


def produce(
    bootstrap: str, topic: str, properties: Sequence[str], *, size: int, records: int, warm_records: int
) -> Produced:
    """Send as fast as the producer takes them.

    ``properties`` are further ones of the producer, as ``name=value``. The figures exclude the first
    ``warm_records``.

    Raises:
        ToolError: the tool failed.
    """
    return parse_produced(
        _run(
            _PRODUCER_TOOL,
            *("--topic", topic, "--num-records", str(records), "--record-size", str(size)),
            *("--throughput", "-1", "--warmup-records", str(warm_records)),
            # All of them after one option: a second one would replace the first.
            *("--command-property", f"bootstrap.servers={bootstrap}", *properties),
        )
    )


def parse_produced(printed: str) -> Produced:
    """Return what is in the last summary of ``ProducerPerformance``.

    It excludes the warm-up. Times below a millisecond, which the tool prints as 0, are taken for half of one.

    Raises:
        ToolError: there is no summary line.
    """
    summaries = _PRODUCED.findall(printed)
    if not summaries:
        raise ToolError(f"{_PRODUCER_TOOL} printed no summary:\n{printed}")
    rate, p50_ms, p99_ms = map(float, summaries[-1])
    return Produced(rate, p50_ms or _BELOW_ONE_MS, p99_ms or _BELOW_ONE_MS)


def consume(bootstrap: str, topic: str, *, records: int) -> float:
    """Read the topic from its beginning.

    Return records per second, without the rebalance.

    Raises:
        ToolError: the tool failed or did not read all records.
    """
    printed = _run(
        _CONSUMER_TOOL,
        *("--bootstrap-server", bootstrap, "--topic", topic, "--num-records", str(records)),
    )
    consumed, rate = parse_consumed(printed)
    if consumed < records:
        raise ToolError(f"{consumed:.0f} of {records} records consumed:\n{printed}")
    return rate


def parse_consumed(printed: str) -> tuple[float, float]:
    """Return the records consumed, and their rate without the rebalance.

    Raises:
        ToolError: the table is missing.
    """
    for head, values in pairwise(printed.splitlines()):
        if head.startswith("start.time"):
            names = [name.strip() for name in head.split(",")]
            row = dict(zip(names, (value.strip() for value in values.split(",")), strict=True))
            return float(row["data.consumed.in.nMsg"]), float(row["fetch.nMsg.sec"])
    raise ToolError(f"{_CONSUMER_TOOL} printed no table:\n{printed}")


def _run(class_name: str, *arguments: str) -> str:
    """Return what a tool printed.

    Raises:
        ToolError: it did not exit with 0.
    """
    done = run_tool(class_name, *arguments, timeout_s=TOOL_TIMEOUT_S)
    if done.returncode != 0:
        raise ToolError(f"{class_name} exited with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout
