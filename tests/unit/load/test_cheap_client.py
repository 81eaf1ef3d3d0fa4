"""The cheap client: what it counts, and which answers it refuses."""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest

from load.bench_two_cores import Sample
from load.cheap_client import Drive, drive
from load.kafka_frames import ErrorAnswered
from load.process_usage import pinned

REQUEST = b"a request of 20 byte"
CONNECTIONS, IN_FLIGHT = 3, 5


def produce_answer(error: int = 0) -> bytes:
    body = struct.pack(">ii", 0, 1) + struct.pack(">h", 5) + b"bench"
    body += struct.pack(">iihqqq", 1, 0, error, 4711, -1, 0) + struct.pack(">i", 0)
    return struct.pack(">i", len(body)) + body


class Server:
    """Answers each request with what ``answer`` returns for its number on the connection."""

    def __init__(self, answer: Callable[[int], bytes | None]) -> None:
        self._answer = answer
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.counts: list[int] = []
        self._threads = [threading.Thread(target=self._serve, daemon=True) for _ in range(CONNECTIONS)]
        for thread in self._threads:
            thread.start()

    def _serve(self) -> None:
        connection, _ = self._listening.accept()
        count = 0
        # A client that has found an error leaves with answers unread.
        with connection, suppress(ConnectionError):
            while len(connection.recv(len(REQUEST), socket.MSG_WAITALL)) == len(REQUEST):
                answer = self._answer(count)
                if answer is None:
                    break
                connection.sendall(answer)
                count += 1
        self.counts.append(count)

    def close(self) -> None:
        for thread in self._threads:
            thread.join(10)
        self._listening.close()


@contextmanager
def server(answer: Callable[[int], bytes | None]) -> Generator[Server]:
    running = Server(answer)
    try:
        yield running
    finally:
        running.close()


def drive_of(port: int) -> Drive:
    return Drive(
        kind="produce",
        host="127.0.0.1",
        port=port,
        request=REQUEST,
        answer_bytes=len(produce_answer()),
        connections=CONNECTIONS,
        in_flight=IN_FLIGHT,
        cores=frozenset(os.sched_getaffinity(0)),
        start_s=time.monotonic(),
        seconds=0.05,
    )


@pytest.mark.parametrize("seconds", [0.0, 0.05])
def test_it_counts_the_requests_that_were_answered_without_those_before_the_start(seconds: float) -> None:
    with server(lambda _: produce_answer()) as running:
        driven = drive(replace(drive_of(running.port), seconds=seconds))
    assert driven.requests >= CONNECTIONS * IN_FLIGHT
    assert driven.requests + CONNECTIONS * IN_FLIGHT == sum(running.counts)
    assert driven.ended_s >= driven.started_s + seconds


def test_an_error_in_the_first_answers_is_raised() -> None:
    with (
        server(lambda number: produce_answer(error=3 if number == 1 else 0)) as running,
        pytest.raises(ErrorAnswered, match="error 3"),
    ):
        drive(drive_of(running.port))


def test_an_error_that_begins_later_is_in_the_last_answers() -> None:
    with (
        server(lambda number: produce_answer(error=56 if number >= IN_FLIGHT else 0)) as running,
        pytest.raises(ErrorAnswered, match="error 56"),
    ):
        drive(drive_of(running.port))


def test_answers_of_another_size_are_noticed() -> None:
    with (
        server(lambda number: produce_answer() + b"\0" * (number == IN_FLIGHT)) as running,
        pytest.raises(ConnectionError, match="bytes instead of"),
    ):
        drive(drive_of(running.port))


def test_a_broker_that_closes_the_connection_ends_the_run() -> None:
    with (
        server(lambda number: produce_answer() if number < IN_FLIGHT else None) as running,
        pytest.raises(ConnectionError),
    ):
        drive(drive_of(running.port))


def test_figures_of_a_run() -> None:
    sample = Sample(requests=50_000, seconds=2.0, broker_s=1.25)
    assert sample.rate == 25_000
    assert sample.rate_of_cpu == 40_000


def test_processes_inherit_the_cores_and_this_one_gets_its_own_back() -> None:
    before = os.sched_getaffinity(0)
    with pinned(frozenset({min(before)})):
        assert os.sched_getaffinity(0) == {min(before)}
    assert os.sched_getaffinity(0) == before
