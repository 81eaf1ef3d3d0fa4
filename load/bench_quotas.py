"""Measure what unexceeded quotas cost, and how exactly a rate is held.

``python -m load.bench_quotas`` prints the CPU time of the event loop's thread per request, with quotas that are never
reached beside none, by connections to one broker in this process (``call_costs``). Whether quotas are in force is
switched between the slices. The last figure is the rate of a Kafka producer over a socket that sends as fast as it
may, as a share of its quota, after the burst that it is allowed has left the window.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import httpx
from stele.broker_process import BrokerProcess, run_broker
from stele.wire.record_batch import build_values

from app.broker.quotas.entities import QuotaEntity
from app.broker.quotas.manager import Quotas

from .call_costs import CommonRequest, caller_of, check_alike, common_requests, pairs_of, prepare, report, run
from .in_process import HOST, Caller, broker_in_process
from .kafka_frames import connect, make_topic, produce_request, receive
from .slices import PAIRS, Slice, SlicedComparison, in_slices

# Never reached.
NEVER = {"producer_byte_rate": 1e13, "consumer_byte_rate": 1e13}
GOAL = 1.15
RATE = 2_000_000
BATCH_BYTES = 100_000
# The default window of eleven samples, twice: what was sent at once at the beginning counts no more.
SETTLED_S = 22.0


def set_quotas(broker: BrokerProcess, values: dict[str, float]) -> None:
    change = {"entity": {"user": "ANONYMOUS"}, "values": values}
    httpx.patch(f"{broker.http_url}/v1/quotas", json=change).raise_for_status()


def slices(quotas: Quotas, request: CommonRequest, caller: Caller, *, are_active: bool) -> Slice:
    """Return slices of requests while quotas are in force, or as if there were none."""

    async def work() -> float:
        quotas.is_active = are_active
        return await caller.call(request.per_slice // request.at_once)

    return work


async def measure(data_dir: Path, only: str, pairs: int) -> None:
    """Print what quotas that are never reached cost in each request."""
    async with broker_in_process(data_dir) as process:
        await prepare(process.broker)
        quotas = process.broker.quotas
        await quotas.alter(QuotaEntity.of([("user", "ANONYMOUS")]), NEVER)
        for request in common_requests():
            if only not in request.what:
                continue
            comparisons: list[SlicedComparison] = []
            for are_active in (True, False):
                ours, yardstick = await caller_of(process, request), await caller_of(process, request)
                check_alike(request, ours, yardstick)
                comparisons.append(
                    await in_slices(
                        slices(quotas, request, ours, are_active=are_active),
                        slices(quotas, request, yardstick, are_active=False),
                        pairs=pairs_of(request, pairs),
                    )
                )
            comparison, control = comparisons
            report(request, comparison, control, with_it="with quotas", without="without quotas", goal=GOAL)


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
    parser.add_argument("--only", default="", help="figures whose names contain this text")
    parser.add_argument("--pairs", type=int, default=PAIRS, help=f"pairs of slices (default: {PAIRS})")
    parser.add_argument(
        "--seconds",
        type=float,
        default=44.0,
        help="time of the producer that is held (default: 44; 0 leaves it out)",
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run(measure(Path(folder) / "data", options.only, options.pairs))
    if options.seconds:
        with run_broker(arguments=("--log-level", "warning")) as broker:
            share = share_of_rate(broker, options.seconds)
        print(f"a producer with a quota of {RATE:,} bytes/s that has settled: {share:.3f} of the quota")


if __name__ == "__main__":
    main()
