"""Measure what a live tail, the overview and Prometheus cost a producer.

The tail is the console's own (previews, at most 200 records per second); the
overview and its history are requested every two seconds, ``/metrics`` every second.
The yardstick is the same produce without any viewer.
"""

from __future__ import annotations

import http.client
import socket
import statistics
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from urllib.parse import urlsplit

from .bench_binary_produce import produce_rate
from .bench_http_ndjson import body_of
from .broker_process import running_broker
from .measure import in_turn, report

TAIL = "/v1/topics/bench/records?preview=2000&max_per_s=200"
# Long enough that every look falls into a run several times.
RUNS = 8
ROUNDS = 7
PAGES = 50
SCANNED = 200_000


def _rate(port: int) -> float:
    """Of ``RUNS`` runs one after the other."""
    return RUNS / sum(1 / produce_rate(port) for _ in range(RUNS))


def _look(port: int, paths: tuple[str, ...], interval_s: float, ending: threading.Event) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    while not ending.is_set():
        for path in paths:
            connection.request("GET", path)
            answer = connection.getresponse()
            if answer.status != 200:
                raise RuntimeError(f"{path} answered {answer.status}")
            answer.read()
        ending.wait(interval_s)
    connection.close()


def _tail(tail: socket.socket, seen: list[int]) -> None:
    while data := tail.recv(1024 * 1024):
        seen[0] += data.count(b'\ndata: {"partition"')


@contextmanager
def looking(port: int) -> Generator[list[int]]:
    """Everything that an open console and a Prometheus ask.

    Gives a count of the records that the tail showed.
    """
    ending = threading.Event()
    seen = [0]
    tail = socket.create_connection(("127.0.0.1", port))
    request = f"GET {TAIL} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"
    tail.sendall(request.encode())
    looks = (
        (("/v1/overview", "/v1/overview/history"), 2.0),
        (("/metrics",), 1.0),
    )
    threads = [threading.Thread(target=_look, args=(port, *look, ending)) for look in looks]
    threads.append(threading.Thread(target=_tail, args=(tail, seen)))
    for thread in threads:
        thread.start()
    try:
        yield seen
    finally:
        ending.set()
        tail.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()
        tail.close()


def pages_at_5000_topics() -> None:
    """A page and a search of topics beside the same with fifty topics.

    Pages show sizes.
    """
    asked = "/v1/topics?search=7&page=1&limit=50&sizes=true"
    with running_broker("--log-level", "warning") as few, running_broker("--log-level", "warning") as many:
        ports: list[int] = []
        for broker, topics in ((few, 50), (many, 5000)):
            port = urlsplit(broker.http_url).port
            assert port is not None
            ports.append(port)
            connection = http.client.HTTPConnection("127.0.0.1", port)
            for number in range(topics):
                _ask(connection, "PUT", f"/v1/topics/topic-{number:04}")
        comparison = in_turn(lambda: _page_ms(ports[1], asked), lambda: _page_ms(ports[0], asked))
    report(
        "a page of 50 of 5,000 topics, by a part of the name and with sizes",
        comparison,
        unit="ms",
        yardstick="the same among 50 topics",
        goal=20,
        at_most=True,
    )


def _ask(connection: http.client.HTTPConnection, method: str, path: str) -> bytes:
    connection.request(method, path)
    answer = connection.getresponse()
    body = answer.read()
    if answer.status >= 400:
        raise RuntimeError(f"{path} answered {answer.status}: {body[:300]!r}")
    return body


def _page_ms(port: int, path: str) -> float:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    _ask(connection, "GET", path)
    start = time.perf_counter()
    for _ in range(PAGES):
        _ask(connection, "GET", path)
    connection.close()
    return (time.perf_counter() - start) * 1000 / PAGES


def scan_rate() -> None:
    """Return the rate of a search with conditions and no match, in records/s.

    There is one condition of each kind.
    """
    with running_broker("--log-level", "warning") as broker:
        port = urlsplit(broker.http_url).port
        assert port is not None
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request(
            "POST",
            "/v1/topics/flights/records",
            body_of(SCANNED),
            {"Content-Type": "application/x-ndjson"},
        )
        connection.getresponse().read()
        print(f"a search of {SCANNED:,} records of 90 bytes that finds nothing")
        for condition in ("value=nowhere", "json=carrier%20%3D%3D%20nowhere"):
            rates: list[float] = []
            for _ in range(ROUNDS):
                start = time.perf_counter()
                _ask(connection, "GET", f"/v1/topics/flights/search?{condition}")
                rates.append(SCANNED / (time.perf_counter() - start))
            print(f"  {condition:<32}  {statistics.median(rates):>12,.0f} records/s", flush=True)


def main() -> None:
    watched_throughput()
    pages_at_5000_topics()
    scan_rate()


def watched_throughput() -> None:
    with running_broker("--log-level", "warning") as broker:
        binary, listener = urlsplit(broker.binary_url).port, urlsplit(broker.http_url).port
        assert binary is not None
        assert listener is not None
        produce_rate(binary)
        shown = 0

        def watched() -> float:
            nonlocal shown
            with looking(listener) as seen:
                rate = _rate(binary)
            shown += seen[0]
            return rate

        comparison = in_turn(watched, lambda: _rate(binary), rounds=ROUNDS)
        if not shown:
            raise RuntimeError("the tail showed nothing: this measured nothing")
    report(
        f"binary PRODUCE, pipelined, acks=1, with a live tail ({shown:,} records shown), the overview and /metrics",
        comparison,
        unit="records/s",
        yardstick="the same without a viewer",
        goal=0.95,
    )


if __name__ == "__main__":
    main()
