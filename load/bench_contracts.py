"""Measure what contracts of topics cost: produces of records with a schema, and another producer meanwhile.

Values of eight fields are produced in batches over the Kafka protocol. Validated are their ids, or their content, too;
the yardstick is a topic of the same broker without validation, with the same batches. The p99 is that of single
produces to another topic, while as many records per second arrive on both sides; for it the broker has a core of its
own, as in ``bench_fairness``.

What topics without validation cost is measured by ``bench_request_cost --against``.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import httpx
from stele import Client
from stele.broker_process import BrokerProcess
from stele.schemas import avro, framing, protobuf
from stele.wire.record_batch import build_values

from .bench_fairness import p99_ms
from .harness import Benchmark, Rounds, in_turn
from .kafka_frames import check_produce, connect, produce_request, receive
from .process_usage import first_on_its_core, process_cpu_s, separate
from .results import at_least, at_most
from .subjects import quiet_broker

HOST = "127.0.0.1"
# Requests that are sent before the first answer is read.
IN_FLIGHT = 5
VALIDATIONS = ("id", "content")
_FIELDS = {
    "id": ("long", "integer", "int64", 4711),
    "customer": ("string", "string", "string", "ada lovelace"),
    "item": ("string", "string", "string", "tea, black"),
    "quantity": ("int", "integer", "int32", 3),
    "price": ("double", "number", "double", 12.5),
    "paid": ("boolean", "boolean", "bool", True),
    "placed": ("long", "integer", "int64", 1_790_000_000_000),
    "note": ("string", "string", "string", ""),
}


class Kind(NamedTuple):
    """A schema of the eight fields, and a value with what stands between the id and the value."""

    type: str
    schema: str
    payload: bytes


def kinds() -> dict[str, Kind]:
    value = {name: example for name, (*_, example) in _FIELDS.items()}
    record = {"type": "record", "name": "Order", "fields": []} | {
        "fields": [{"name": name, "type": kind} for name, (kind, *_) in _FIELDS.items()]
    }
    document = {
        "type": "object",
        "properties": {name: {"type": kind} for name, (_, kind, *_) in _FIELDS.items()},
        "required": [*_FIELDS],
    }
    fields = [
        f"{kind} {name} = {number};" for number, (name, (_, _, kind, _)) in enumerate(_FIELDS.items(), 1)
    ]
    message = f'syntax = "proto3"; message Order {{ {" ".join(fields)} }}'
    indexed = framing.join_indexes(
        (0,), protobuf.parse(message).encode(value | {"placed": str(value["placed"])})
    )
    return {
        "Avro": Kind("AVRO", json.dumps(record), avro.parse(json.dumps(record)).encode(value)),
        "JSON Schema": Kind("JSON", json.dumps(document), json.dumps(value).encode()),
        "Protobuf": Kind("PROTOBUF", message, indexed),
    }


def topic_of(kind: str, validation: str) -> str:
    return f"{kind.replace(' ', '')}-{validation}"


def prepare(broker: BrokerProcess, kind: str, records: int) -> dict[str, bytes]:
    """Make the topics of a kind of schema, and return a request for each, by the validation."""
    requests: dict[str, bytes] = {}
    schema_type, schema, payload = kinds()[kind]
    for validation in ("none", *VALIDATIONS):
        topic = topic_of(kind, validation)
        configs = {"stele.value.schema.validation": validation, "retention.bytes": str(64 << 20)}
        answer = httpx.put(f"{broker.http_url}/v1/topics/{topic}", json={"partitions": 1, "configs": configs})
        body = {"schema": schema, "schemaType": schema_type}
        registered = httpx.post(f"{broker.registry_url}/subjects/{topic}-value/versions", json=body)
        if answer.is_error or registered.is_error:
            raise RuntimeError(f"{answer.text} {registered.text}")
        value = framing.join(registered.json()["id"], payload)
        batch = build_values([value] * records, time.time_ns() // 1_000_000)
        requests[validation] = produce_request(topic, bytes(batch), acks=1)
    return requests


def records_per_s(
    port: int, request: bytes, *, records: int, seconds: float, per_s: float = 0.0
) -> tuple[float, int]:
    """Return how many records were appended per second, of up to ``per_s``, and in all; 0 is no bound."""
    with connect(HOST, port) as connection:
        for _ in range(IN_FLIGHT):
            connection.sendall(request)
        done, begun_s = 0, time.perf_counter()
        while (elapsed_s := time.perf_counter() - begun_s) < seconds:
            check_produce(receive(connection))
            done += records
            if per_s:
                time.sleep(max(0.0, done / per_s - elapsed_s))
            connection.sendall(request)
        return done / elapsed_s, done


def produce_forever(port: int, per_s: int, records: int) -> None:
    """Produce the request that comes on standard input, at a rate, until the end of the process."""
    (size,) = struct.unpack(">i", sys.stdin.buffer.read(4))
    records_per_s(port, sys.stdin.buffer.read(size), records=records, seconds=1e9, per_s=per_s)


@contextmanager
def load(port: int, request: bytes, per_s: int, records: int) -> Generator[None]:
    """Have another process produce, after which this one comes first on its core."""
    command = [sys.executable, "-m", "load.bench_contracts", "--load", *map(str, (port, per_s, records))]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(struct.pack(">i", len(request)) + request)
        process.stdin.close()
        try:
            with first_on_its_core():
                yield
            if process.poll() is not None:
                raise RuntimeError("the load ended before the measurement did")
        finally:
            process.kill()


def measure_rates(bench: Benchmark, options: Any) -> None:
    found = Rounds()
    for kind in kinds():
        with quiet_broker() as broker:
            requests = prepare(broker, kind, options.records)
            # The first round is for warmth.
            for number in range(options.rounds + 1):
                for validation, request in requests.items():
                    before_s = process_cpu_s(broker.pid)
                    rate, done = records_per_s(
                        broker.kafka_port, request, records=options.records, seconds=options.seconds
                    )
                    cpu_us = (process_cpu_s(broker.pid) - before_s) / done * 1e6
                    for other in VALIDATIONS if validation == "none" else (validation,):
                        if number:
                            what = f"{kind}, validation: {other}"
                            found.add(what, "rate", rate, is_stele=validation != "none")
                            found.add(what, "cpu", cpu_us, is_stele=validation != "none")
    for what in found.values:
        goal = at_least(100_000, "stele") if "content" in what else None
        rate = found.measure(what, "rate", "/s", goal)
        bench.row(
            f"records of {what}",
            baseline="none",
            measures={"rate": rate, "cpu": found.measure(what, "cpu", "µs")},
        )


def measure_others(bench: Benchmark, options: Any) -> None:
    for kind in kinds():
        with quiet_broker() as broker, Client(broker.binary_url) as client:
            requests = prepare(broker, kind, options.records)
            cores = os.sched_getaffinity(0)
            separate(broker.pid)
            p99_ms(client, options.samples)

            def p99(request: bytes, broker: BrokerProcess = broker, client: Client = client) -> float:
                with load(broker.kafka_port, request, options.per_s, options.records):
                    # Discarded: the load is starting.
                    p99_ms(client, options.samples // 4)
                    return p99_ms(client, options.samples)

            for validation in VALIDATIONS:
                found = in_turn(
                    partial(p99, requests[validation]),
                    partial(p99, requests["none"]),
                    rounds=options.rounds,
                    unit="ms",
                    goal=at_most(1.2),
                )
                what = f"p99 beside {options.per_s:,} records/s of {kind}, validation: {validation}"
                bench.row(what, baseline="none", value=found)
            os.sched_setaffinity(0, cores)


def measure_all(bench: Benchmark, options: Any) -> None:
    if options.only != "others":
        measure_rates(bench, options)
    if options.only != "rates":
        measure_others(bench, options)


def main() -> None:
    bench = Benchmark(__file__, __doc__, rounds=3)
    bench.add("--seconds", type=float, default=2.0, quick=0.3, help="of each rate (default: 2)")
    bench.add("--records", type=int, default=500, help="in a batch (default: 500)")
    bench.add("--samples", type=int, default=1000, quick=100, help="produces of which a p99 is")
    bench.add("--per-s", type=int, default=20_000, help="records per second beside them (default: 20,000)")
    bench.parser.add_argument("--only", choices=["rates", "others"])
    with bench.run() as options:
        measure_all(bench, options)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--load"]:
        produce_forever(*map(int, sys.argv[2:]))
    else:
        main()
