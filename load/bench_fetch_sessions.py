"""Measure CPU time of a Fetch of 1,000 partitions, with and without a session.

Ten of the partitions are active.

A round is one append to each active partition and one Fetch (v7, by hand) that
has them; what the appends cost is measured alone and subtracted. An idle round is
a Fetch that finds nothing, with no wait, so that rounds can be counted. Without a
session the same consumer names all its partitions in each Fetch.
"""

from __future__ import annotations

import argparse
import socket
import struct
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from stele.wire.record_batch import build_values

from . import kafka_frames as frames
from .broker_process import running_broker
from .measure import in_turn, report

TOPIC = "wide"
PARTITIONS = 1000
ACTIVE = 10
ROUNDS = 100
# The responses of idle partitions are cached for a consumer without a session, so it costs little more.
GOAL = 1.0
# Of 1,000 idle partitions in a session beside one: nothing for each of them.
IDLE_GOAL = 1.1
_VERSION = 7
_BYTES = 1 << 20


def cpu_us(pid: int) -> float:
    """CPU time of the main thread of a process so far: that of the broker's loop."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1000


def fetch_request(offsets: Mapping[int, int], *, session: int, epoch: int, max_wait_ms: int = 0) -> bytes:
    partitions = b"".join(
        struct.pack(">iqqi", index, offset, -1, _BYTES) for index, offset in offsets.items()
    )
    topics = struct.pack(">i", 0)
    if offsets:
        topics = (
            struct.pack(">ih", 1, len(TOPIC)) + TOPIC.encode() + struct.pack(">i", len(offsets)) + partitions
        )
    body = (
        struct.pack(">iiiibii", -1, max_wait_ms, 1, _BYTES, 0, session, epoch) + topics + struct.pack(">i", 0)
    )
    return frames.request(frames.FETCH, _VERSION, 0, body)


def read_fetch(answer: bytes) -> tuple[int, dict[int, int]]:
    """The session, and the high watermarks of the partitions that are answered."""
    error, session, topics = struct.unpack_from(">hii", answer, 8)
    if error:
        raise frames.ErrorAnswered(f"fetch was answered with error {error}")
    position = 18
    ends: dict[int, int] = {}
    for _ in range(topics):
        (length,) = struct.unpack_from(">h", answer, position)
        (count,) = struct.unpack_from(">i", answer, position + 2 + length)
        position += 6 + length
        for _ in range(count):
            index, refused, end = struct.unpack_from(">ihq", answer, position)
            aborted, size = struct.unpack_from(">ii", answer, position + 30)
            if refused or aborted > 0:
                raise frames.ErrorAnswered(f"partition {index} was answered with error {refused}")
            ends[index] = end
            position += 38 + max(0, size)
    return session, ends


def produce_request() -> bytes:
    """One record for each active partition."""
    batch = bytes(build_values([b"x" * 100], int(time.time() * 1000)))
    body = struct.pack(">hhiih", -1, 1, 30_000, 1, len(TOPIC)) + TOPIC.encode() + struct.pack(">i", ACTIVE)
    for number in range(ACTIVE):
        body += struct.pack(">ii", number * (PARTITIONS // ACTIVE), len(batch)) + batch
    return frames.request(frames.PRODUCE, 7, 0, body)


class WideConsumer:
    """Reads the first ``partitions``, over one connection, and produces over another."""

    def __init__(self, host: str, port: int, *, has_session: bool, partitions: int = PARTITIONS) -> None:
        self._consumer = frames.connect(host, port)
        self._producer = frames.connect(host, port)
        self._has_session = has_session
        self._session = 0
        self._epoch = 0 if has_session else -1
        self._offsets = dict.fromkeys(range(partitions), 0)
        self._changed = dict(self._offsets)
        self._produce = produce_request()

    def append(self) -> None:
        _ask(self._producer, self._produce)

    def fetch(self) -> int:
        """Return how many partitions had records; the next fetch continues after them."""
        named = self._changed if self._has_session else self._offsets
        request = fetch_request(named, session=self._session, epoch=self._epoch)
        session, ends = read_fetch(_ask(self._consumer, request))
        if self._has_session:
            if not session:
                raise RuntimeError("the broker gave no session")
            self._session, self._epoch = session, self._epoch + 1
        self._changed = {index: end for index, end in ends.items() if end != self._offsets[index]}
        self._offsets |= self._changed
        return len(self._changed)

    def catch_up(self) -> None:
        while self.fetch():
            pass
        self.fetch()


def _ask(connection: socket.socket, request: bytes) -> bytes:
    connection.sendall(request)
    return frames.receive(connection)


def measured(pid: int, rounds: int, work: Callable[[], object]) -> float:
    """Microseconds of CPU a round."""
    begun = cpu_us(pid)
    for _ in range(rounds):
        work()
    return (cpu_us(pid) - begun) / rounds


def compare(host: str, port: int, pid: int, rounds: int) -> None:
    consumers = {has: WideConsumer(host, port, has_session=has) for has in (True, False)}
    producer = WideConsumer(host, port, has_session=False)

    def idle(has_session: bool) -> Callable[[], float]:
        consumer = consumers[has_session]

        def run() -> float:
            consumer.catch_up()
            return measured(pid, rounds * 5 if has_session else rounds, consumer.fetch)

        return run

    def active(has_session: bool) -> Callable[[], float]:
        consumer = consumers[has_session]

        def round_() -> None:
            producer.append()
            if consumer.fetch() != ACTIVE:
                raise RuntimeError("a round did not bring what was appended")

        def run() -> float:
            appends = measured(pid, rounds, producer.append)
            consumer.catch_up()
            return max(1.0, measured(pid, rounds, round_) - appends)

        return run

    single = WideConsumer(host, port, has_session=True, partitions=1)

    def idle_single() -> float:
        single.catch_up()
        return measured(pid, rounds * 5, single.fetch)

    report(
        f"CPU for a round of {PARTITIONS:,} partitions, idle, in a fetch session",
        in_turn(idle(True), idle_single),
        unit="µs",
        yardstick="a session of one idle partition",
        goal=IDLE_GOAL,
        at_most=True,
    )
    for what, side in (("idle", idle), (f"{ACTIVE} active", active)):
        report(
            f"CPU for a round of {PARTITIONS:,} partitions, {what}, in a fetch session",
            in_turn(side(True), side(False)),
            unit="µs",
            yardstick="the same consumer without a session",
            goal=GOAL,
            at_most=True,
        )


@contextmanager
def stele() -> Generator[tuple[str, int, int]]:
    with running_broker("--log-level", "warning", "--set", f"num_partitions={PARTITIONS}") as broker:
        yield broker.host, broker.kafka_port, broker.pid


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds: to see that it works")
    options = parser.parse_args()
    rounds = ROUNDS // 10 if options.quick else ROUNDS
    with stele() as (host, port, pid):
        frames.make_topic(host, port, TOPIC)
        compare(host, port, pid, rounds)


if __name__ == "__main__":
    main()
