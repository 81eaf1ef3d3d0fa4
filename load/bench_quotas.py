"""Measure what unexceeded quotas cost, and how exactly a rate is held.

``python -m load.bench_quotas`` prints microseconds of CPU time of the whole broker process per request, of a broker
with quotas beside one without, in turn. The second figure is the rate of a Kafka producer that sends as fast as it may,
as a share of its quota, after the burst that it is allowed has left the window.
"""

from __future__ import annotations

import argparse
import time
from contextlib import ExitStack
from functools import partial
from statistics import median

import httpx
from stele.broker_process import BrokerProcess, run_broker
from stele.wire import messages as m
from stele.wire.record_batch import build_values

from .bench_request_cost import HOST, IN_FLIGHT, Exchange, cost_us, exchanges, prepare
from .kafka_frames import connect, make_topic, produce_request, receive
from .measure import in_turn

# Never reached.
NEVER = {"producer_byte_rate": 1e13, "consumer_byte_rate": 1e13}
RATE = 2_000_000
BATCH_BYTES = 100_000
# The default window of eleven samples, twice: what was sent at once at the beginning counts no more.
SETTLED_S = 22.0


def set_quotas(broker: BrokerProcess, values: dict[str, float]) -> None:
    change = {"entity": {"user": "ANONYMOUS"}, "values": values}
    httpx.patch(f"{broker.http_url}/v1/quotas", json=change).raise_for_status()


def chosen(scale: float) -> list[Exchange]:
    """Return what is measured: produces and fetches of each protocol."""
    wanted = (
        f"Kafka Produce, a record of 100 B, acks=1, {IN_FLIGHT} in flight",
        f"Kafka Produce, a record of 10 KB, acks=1, {IN_FLIGHT} in flight",
        "Kafka Fetch of 16 KB",
        "binary PRODUCE, a record of 100 B, acks=1, one at a time",
    )
    of_others = [one for one in exchanges(scale) if one.what in wanted or one.what.startswith("HTTP")]
    consume = Exchange(
        what="binary CONSUME of 16 records of 1 KB",
        goal="fetch",
        port=lambda broker: broker.binary_port,
        request=m.ConsumeRequest(topic="bench-fetch", offset=0, batch_size=16).encode(),
        requests=max(100, int(3000 * scale)),
        uncounted_bytes=0,
    )
    get = Exchange(
        what="HTTP, one record of 1 KB is read",
        goal="http",
        port=lambda broker: broker.http_port,
        request=f"GET /v1/topics/bench-fetch/partitions/0/records/0 HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode(),
        requests=max(100, int(2000 * scale)),
        connections=4,
        is_http=True,
    )
    return [*of_others, consume, get]


def share_of_rate(broker: BrokerProcess, seconds: float) -> float:
    """Return the rate of a producer that has settled, divided by its quota."""
    make_topic(HOST, broker.kafka_port, "held")
    set_quotas(broker, {"producer_byte_rate": RATE})
    request = produce_request(
        "held", bytes(build_values([b"x" * BATCH_BYTES], time.time_ns() // 1_000_000)), acks=1
    )
    sent, begin_s = 0, 0.0
    with connect(HOST, broker.kafka_port) as connection:
        for span_s in (SETTLED_S, seconds):
            sent, begin_s = 0, time.monotonic()
            while time.monotonic() - begin_s < span_s:
                connection.sendall(request)
                receive(connection)
                sent += len(request)
        return sent / (time.monotonic() - begin_s) / RATE


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7, help="runs per side and figure (default: 7)")
    parser.add_argument("--scale", type=float, default=1.0, help="more or fewer requests per round")
    parser.add_argument(
        "--seconds", type=float, default=44.0, help="time of the producer that is held (default: 44)"
    )
    options = parser.parse_args()
    with ExitStack() as stack:
        limited, free = (
            stack.enter_context(run_broker(arguments=("--log-level", "warning"))) for _ in range(2)
        )
        for broker in (limited, free):
            prepare(broker)
        set_quotas(limited, NEVER)
        for exchange in chosen(options.scale):
            comparison = in_turn(
                partial(cost_us, exchange, exchange.port(limited), limited.pid),
                partial(cost_us, exchange, exchange.port(free), free.pid),
                rounds=options.rounds,
            )
            ratios = comparison.ratios
            print(exchange.what)
            print(f"  with quotas     {median(comparison.ours):>8.1f} µs of CPU")
            print(f"  without quotas  {median(comparison.yardstick):>8.1f} µs of CPU")
            print(
                f"  ratio           {comparison.ratio:>8.2f} x  (rounds {min(ratios):.2f} to {max(ratios):.2f})",
                flush=True,
            )
        share = share_of_rate(limited, options.seconds)
        print(f"a producer with a quota of {RATE:,} bytes/s that has settled: {share:.3f} of the quota")


if __name__ == "__main__":
    main()
