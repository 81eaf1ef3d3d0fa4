"""Measure the cost of records becoming visible when synced.

The configuration is ``stele.visibility``.

One broker has two topics, one that shows records when they are synced, one when they are appended. In turn:

- *latency*: a consumer is parked in a Fetch, one record is produced with acks=all; measured is from before the produce
  is sent to when the fetch is answered. The time to the producer's own answer, which needs the sync, stands beside it.
- *throughput*: a producer has some batches with acks=all in flight, while a consumer fetches all of them.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import statistics
import sys
import threading
import time
from contextlib import ExitStack

from stele.wire.record_batch import build_values

from . import kafka_frames as frames
from .bench_kafka_wakeup import ParkedConsumer, Samples
from .broker_process import running_broker
from .measure import Comparison, percentile

ACKS_ALL = -1
TOPICS = {"appended": "visible-appended", "synced": "visible-synced"}
VALUE_BYTES = 100
BATCH_RECORDS = 100
IN_FLIGHT = 16
MAX_WAIT_MS = 5000


def make_topic(host: str, http_port: int, topic: str, visibility: str) -> None:
    connection = http.client.HTTPConnection(host, http_port, timeout=30)
    body = json.dumps({"partitions": 1, "configs": {"stele.visibility": visibility}})
    connection.request("PUT", f"/v1/topics/{topic}", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    if answer.status not in (200, 201):
        raise RuntimeError(f"topic {topic} could not be created: {answer.status} {text}")


class Throughput:
    """A producer and a consumer of one topic, each with a connection of its own."""

    def __init__(self, host: str, port: int, topic: str) -> None:
        self._topic = topic
        self._producer = frames.connect(host, port)
        self._consumer = frames.connect(host, port)
        self._failure: Exception | None = None

    def close(self) -> None:
        self._producer.close()
        self._consumer.close()

    def measure(self, batches: int) -> tuple[float, float]:
        """Return records per second of the producer and of the consumer.

        The first ends with the last answer, the second with the last record.
        """
        batch = bytes(build_values([b"x" * VALUE_BYTES] * BATCH_RECORDS, int(time.time() * 1000)))
        request = frames.produce_request(self._topic, batch, acks=ACKS_ALL)
        self._producer.sendall(request)
        first = frames.check_produce(frames.receive(self._producer))
        start = first + BATCH_RECORDS
        consumed: list[float] = []
        reader = threading.Thread(
            target=self._consume, args=(start, batches, len(batch), consumed), daemon=True
        )
        begun = time.perf_counter()
        reader.start()
        for number in range(batches + IN_FLIGHT):
            if number < batches:
                self._producer.sendall(request)
            if number >= IN_FLIGHT:
                frames.check_produce(frames.receive(self._producer))
        produced = time.perf_counter()
        reader.join(timeout=60)
        if self._failure is not None or not consumed:
            raise RuntimeError("the consumer did not get all records") from self._failure
        records = batches * BATCH_RECORDS
        return records / (produced - begun), records / (consumed[0] - begun)

    def _consume(self, offset: int, batches: int, batch_bytes: int, done: list[float]) -> None:
        try:
            end = offset + batches * BATCH_RECORDS
            while offset < end:
                self._consumer.sendall(frames.fetch_request(self._topic, offset, max_wait_ms=MAX_WAIT_MS))
                got = frames.check_fetch(frames.receive(self._consumer))
                # Batches are whole, and all have one size.
                offset += got // batch_bytes * BATCH_RECORDS
            done.append(time.perf_counter())
        except (OSError, frames.ErrorAnswered) as error:
            self._failure = error


def print_ratio(what: str, synced: list[float], appended: list[float], unit: str) -> None:
    comparison = Comparison(ours=synced, yardstick=appended)
    ratios = comparison.ratios
    print(
        f"{what:<34}{statistics.median(synced):>12,.0f}{statistics.median(appended):>12,.0f} {unit:<10}"
        f"{comparison.ratio:>6.2f} x  (rounds {min(ratios):.2f} to {max(ratios):.2f})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="stele.visibility=synced beside appended, with acks=all.")
    parser.add_argument("--quick", action="store_true", help="less of everything: to see that it works")
    options = parser.parse_args()
    count, batches, round_count = (100, 200, 2) if options.quick else (500, 2000, 5)
    latencies: dict[str, list[Samples]] = {visibility: [] for visibility in TOPICS}
    rates: dict[str, list[tuple[float, float]]] = {visibility: [] for visibility in TOPICS}
    with running_broker("--log-level", "warning") as broker, ExitStack() as stack:
        parked: dict[str, ParkedConsumer] = {}
        loads: dict[str, Throughput] = {}
        for visibility, topic in TOPICS.items():
            for name in (topic, f"{topic}-load"):
                make_topic(broker.host, broker.http_port, name, visibility)
            parked[visibility] = ParkedConsumer(broker.host, broker.kafka_port, topic, acks=ACKS_ALL)
            stack.callback(parked[visibility].close)
            loads[visibility] = Throughput(broker.host, broker.kafka_port, f"{topic}-load")
            stack.callback(loads[visibility].close)
        for visibility in TOPICS:
            parked[visibility].measure(count // 4)
            loads[visibility].measure(batches // 4)
        for number in range(round_count):
            print(f"… round {number + 1} of {round_count}", file=sys.stderr, flush=True)
            for visibility in TOPICS:
                latencies[visibility].append(parked[visibility].measure(count))
            for visibility in TOPICS:
                rates[visibility].append(loads[visibility].measure(batches))
    print(
        f"acks=all, values of {VALUE_BYTES} B; {count} single records, then {batches} batches of {BATCH_RECORDS} with"
        f" {IN_FLIGHT} in flight, in each of {round_count} rounds in turn, {os.cpu_count()} cores"
    )
    print(f"{'stele.visibility':<34}{'synced':>12}{'appended':>12}")
    for what, share in (("median", 0.5), ("p99", 0.99)):
        for side in ("fetch", "produce"):
            values = {
                visibility: [
                    percentile(one.fetch_us if side == "fetch" else one.produce_us, share) for one in samples
                ]
                for visibility, samples in latencies.items()
            }
            print_ratio(f"{side} answered, {what}", values["synced"], values["appended"], "µs")
    for index, what in enumerate(("produced", "consumed")):
        values = {visibility: [rate[index] for rate in measured] for visibility, measured in rates.items()}
        print_ratio(what, values["synced"], values["appended"], "records/s")


if __name__ == "__main__":
    main()
