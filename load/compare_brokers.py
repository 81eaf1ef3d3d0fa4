"""Compare the brokers of two source trees per request: a broker of each, and the same client for both.

``python -m load.compare_brokers OTHER_TREE`` starts ``stele serve`` of this tree and of the other one with this
interpreter. Rates are per second of CPU time of the broker's event loop, so the client's work and other work on the
machine do not count. The other tree is the yardstick.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable
from functools import partial
from itertools import count
from pathlib import Path

from stele.broker_process import run_broker
from stele.wire.record_batch import build_rows, build_values

from .bench_tls import Connect, call, connector, fetch, fill, per_cpu_second, produce, read_exactly
from .kafka_frames import fetch_request, make_topic, produce_request
from .measure import in_turn, report

KAFKA_CALLS = 8_000
IN_FLIGHT = 64
TOPIC = "bench-kafka"
THIS = Path(__file__).parent.parent
_producer_ids = count(1_000_000)


def environment_of(tree: Path) -> dict[str, str]:
    """Return what lets an interpreter find the modules of ``tree`` anywhere.

    Raises ``SystemExit`` if it is no source tree: the installed modules would be measured instead.
    """
    if not (tree / "app").is_dir():
        raise SystemExit(f"{tree} is no source tree of Stele: it has no directory app")
    return {"PYTHONPATH": f"{tree}:{tree / 'clients/python'}", "PYTHONSAFEPATH": "1"}


def _calls(connect: Connect, requests: Iterable[bytes]) -> float:
    """Send requests of the Kafka protocol, ``IN_FLIGHT`` at a time; return their number."""
    waiting = list(requests)
    head, body = memoryview(bytearray(4)), memoryview(bytearray(1 << 20))
    with connect() as connection:
        for start in range(0, len(waiting), IN_FLIGHT):
            group = waiting[start : start + IN_FLIGHT]
            connection.sendall(b"".join(group))
            for _ in group:
                read_exactly(connection, head)
                read_exactly(connection, body[: int.from_bytes(head)])
    return len(waiting)


def kafka_produce(connect: Connect) -> float:
    batch = bytes(build_values([b"x" * 100], time.time_ns() // 1_000_000))
    return _calls(connect, [produce_request(TOPIC, batch, acks=1)] * KAFKA_CALLS)


def kafka_fetch(connect: Connect) -> float:
    """Fetch at the end of the log, where there is nothing: the least work that a fetch can be."""
    return _calls(connect, [fetch_request(TOPIC, 0, max_wait_ms=0)] * KAFKA_CALLS)


def kafka_produce_synced(connect: Connect) -> float:
    batch = bytes(build_values([b"x" * 100], time.time_ns() // 1_000_000))
    return _calls(connect, [produce_request(TOPIC, batch, acks=-1)] * KAFKA_CALLS)


def kafka_produce_idempotent(connect: Connect) -> float:
    producer_id, now_ms = next(_producer_ids), time.time_ns() // 1_000_000
    batches = (
        build_rows(
            [(now_ms, None, b"x" * 100, [])], producer_id=producer_id, producer_epoch=0, base_sequence=number
        )
        for number in range(KAFKA_CALLS)
    )
    return _calls(connect, (produce_request(TOPIC, bytes(batch), acks=1) for batch in batches))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("other", type=Path, help="the tree to compare with")
    parser.add_argument("--rounds", type=int, default=9, help="runs per tree and figure (default: 9)")
    options = parser.parse_args()
    arguments = ("--log-level", "warning")
    with (
        run_broker(arguments=arguments, environment=environment_of(THIS)) as this,
        run_broker(arguments=arguments, environment=environment_of(options.other.resolve())) as other,
    ):
        brokers = (this, other)
        for broker in brokers:
            fill(connector(broker.binary_port, None))
            make_topic(broker.host, broker.kafka_port, TOPIC)
        over_binary = [connector(broker.binary_port, None) for broker in brokers]
        over_kafka = [connector(broker.kafka_port, None) for broker in brokers]
        measures: list[tuple[str, Callable[[Connect], float], list[Connect], str]] = [
            ("Kafka Fetch of nothing, without a wait", kafka_fetch, over_kafka, "calls"),
            ("Kafka Produce, 100 bytes, acks=1 (appended)", kafka_produce, over_kafka, "calls"),
            (
                "Kafka Produce, 100 bytes, acks=1, idempotent (appended)",
                kafka_produce_idempotent,
                over_kafka,
                "calls",
            ),
            (
                "Kafka Produce, 100 bytes, acks=all, 64 in flight (synced)",
                kafka_produce_synced,
                over_kafka,
                "calls",
            ),
            ("PRODUCE, pipelined, 100 bytes (appended)", produce, over_binary, "records"),
            ("PRODUCE, one at a time, 100 bytes (appended)", call, over_binary, "calls"),
            ("fetch of 1 MiB, warm cache", fetch, over_binary, "MiB"),
        ]
        for what, measure, (ours, theirs), unit in measures:
            report(
                what,
                in_turn(
                    partial(per_cpu_second, measure, ours, this),
                    partial(per_cpu_second, measure, theirs, other),
                    rounds=options.rounds,
                ),
                unit=f"{unit} per CPU second",
                yardstick=str(options.other),
                goal=0.98,
            )


if __name__ == "__main__":
    main()
