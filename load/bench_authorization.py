"""Measure what access rules cost.

Requests whose rights are looked up, against the same broker without rules.

Rates are per second of CPU time of the broker's event loop: the client's work and other
work on the machine do not count.
"""

from __future__ import annotations

import struct
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from stele.broker_process import run_broker
from stele.wire.record_batch import build_values

from app.security.acl import Acl, Operation, PatternType, ResourceType
from app.security.acl_text import document_of
from app.security.offline import add_acls

from .bench_tls import Connect, call, connector, fetch, fill, per_cpu_second, produce, read_exactly
from .kafka_frames import fetch_request, make_topic, produce_request
from .measure import in_turn, report

ROUNDS = 9
# Rules of others, as a broker with many users has.
OTHER_RULES = 1_000
KAFKA_CALLS = 8_000
IN_FLIGHT = 64
TOPIC = "bench-kafka"


def write_rules(data_dir: Path) -> None:
    """Allow anonymous clients everything on topics, beside the rules of many others."""
    others = [
        Acl(
            resource_type=ResourceType.TOPIC,
            resource_name=f"team-{number}-",
            pattern_type=PatternType.PREFIXED,
            principal=f"User:team-{number}",
            operation=Operation.ALL,
        )
        for number in range(OTHER_RULES)
    ]
    own = Acl(
        resource_type=ResourceType.TOPIC,
        resource_name="*",
        principal="User:ANONYMOUS",
        operation=Operation.ALL,
    )
    add_acls(data_dir, [document_of(acl) for acl in (*others, own)])


def _calls(connect: Connect, request: bytes) -> float:
    """Send requests of the Kafka protocol, some at a time; return their number."""
    head, body = memoryview(bytearray(4)), memoryview(bytearray(1 << 20))
    with connect() as connection:
        for _ in range(KAFKA_CALLS // IN_FLIGHT):
            connection.sendall(request * IN_FLIGHT)
            for _ in range(IN_FLIGHT):
                read_exactly(connection, head)
                read_exactly(connection, body[: struct.unpack(">i", head)[0]])
    return KAFKA_CALLS // IN_FLIGHT * IN_FLIGHT


def kafka_produce(connect: Connect) -> float:
    batch = bytes(build_values([b"x" * 100], time.time_ns() // 1_000_000))
    return _calls(connect, produce_request(TOPIC, batch, acks=1))


def kafka_fetch(connect: Connect) -> float:
    """Fetch at the end of the log, where there is nothing.

    The least work that a fetch can be.
    """
    return _calls(connect, fetch_request(TOPIC, 0, max_wait_ms=0))


def main() -> None:
    arguments = ("--log-level", "warning")
    with tempfile.TemporaryDirectory() as folder:
        data_dir = Path(folder) / "data"
        write_rules(data_dir)
        with (
            run_broker(
                data_dir=data_dir, arguments=arguments, environment={"STELE_AUTHORIZATION": "acls"}
            ) as ruled,
            run_broker(arguments=arguments) as open_to_all,
        ):
            brokers = (ruled, open_to_all)
            for broker in brokers:
                fill(connector(broker.binary_port, None))
                make_topic(broker.host, broker.kafka_port, TOPIC)
            over_binary = [connector(broker.binary_port, None) for broker in brokers]
            over_kafka = [connector(broker.kafka_port, None) for broker in brokers]
            measures: list[tuple[str, Callable[[Connect], float], list[Connect], str]] = [
                ("Kafka Fetch of nothing, one partition", kafka_fetch, over_kafka, "calls"),
                ("Kafka Produce, one batch of 100 bytes, acks=1", kafka_produce, over_kafka, "calls"),
                ("PRODUCE, pipelined, 100 bytes, appended", produce, over_binary, "records"),
                ("PRODUCE, one at a time, 100 bytes, appended", call, over_binary, "calls"),
                ("fetch of 1 MiB, warm cache", fetch, over_binary, "MiB"),
            ]
            for what, measure, (ours, yardstick), unit in measures:
                report(
                    f"{what}, with {OTHER_RULES + 1:,} access rules",
                    in_turn(
                        partial(per_cpu_second, measure, ours, ruled),
                        partial(per_cpu_second, measure, yardstick, open_to_all),
                        rounds=ROUNDS,
                    ),
                    unit=f"{unit} per CPU second",
                    yardstick="the same without access rules",
                    goal=0.98,
                )


if __name__ == "__main__":
    main()
