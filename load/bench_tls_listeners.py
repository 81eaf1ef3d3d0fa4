"""Measure what TLS costs on each listener, beside Apache Kafka.

A figure is what the same work with and without TLS costs the broker: records per second of CPU time of its whole
process, with records of 100 bytes and 1 KB. The same client and the same certificate (ECDSA P-256) serve both brokers, and one of them has work at a time.
``--without-kafka`` leaves Apache Kafka out.
"""

from __future__ import annotations

import argparse
import http.client
import json
import ssl
import statistics
import struct
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import NamedTuple, Protocol

from cryptography.hazmat.primitives.asymmetric import ec
from stele.broker_process import BrokerProcess, BrokerTls, run_broker
from stele.wire import messages as m
from stele.wire.record_batch import build_values

from .apache_kafka import ApacheKafka, NodeOfCluster, random_cluster_id
from .bench_kafka_throughput import RunningSubject
from .bench_kafka_throughput import consume as kafka_consume
from .bench_kafka_throughput import produce as kafka_produce
from .bench_tls import Connect, connector, read_exactly
from .certificates import write_certificate
from .measure import Comparison, in_turn
from .process_usage import process_cpu_s
from .server_start import free_ports

SIZES_BYTES = (100, 1024)
RECORDS = {100: 200_000, 1024: 60_000}
ROUNDS = 3
_BATCH_BYTES = 16 * 1024
_IN_FLIGHT = 5
_FETCH_BYTES = 1024 * 1024
_HTTP_BATCH = 1000
_HTTP_SHARE = 10  # JSON costs far more per record: a tenth of the records.

_topics = (f"bench-tls-{number}" for number in count())


class HasPid(Protocol):
    @property
    def pid(self) -> int: ...


class Figure(NamedTuple):
    """A row: the same work with TLS and without."""

    what: str
    with_tls: Callable[[], float]
    without: Callable[[], float]

    @classmethod
    def of(cls, what: str, brokers: Sequence[HasPid], works: Sequence[Callable[[], int]]) -> Figure:
        """Return what ``works`` cost ``brokers``: of each, the one with TLS comes first."""
        return cls(what, *(partial(per_cpu_second, *side) for side in zip(brokers, works, strict=True)))


def per_cpu_second(broker: HasPid, work: Callable[[], int]) -> float:
    before_s = process_cpu_s(broker.pid)
    done = work()
    return done / (process_cpu_s(broker.pid) - before_s)


# ── Kafka protocol ──


def _kafka_topic(subject: RunningSubject, size: int) -> str:
    """Return a new topic with the records that are to be read."""
    topic = next(_topics)
    kafka_produce(subject, topic, partitions=1, acks="1", size=size, records=RECORDS[size])
    return topic


def _produce_kafka(subject: RunningSubject, size: int) -> int:
    _kafka_topic(subject, size)
    return RECORDS[size]


def _consume_kafka(subject: RunningSubject, topic: str, size: int) -> int:
    kafka_consume(subject, topic, partitions=1, records=RECORDS[size])
    return RECORDS[size]


def kafka_figures(over_tls: RunningSubject, plain: RunningSubject) -> Iterator[Figure]:
    sides = over_tls, plain
    for size in SIZES_BYTES:
        works = [partial(_produce_kafka, one, size) for one in sides]
        yield Figure.of(f"Kafka protocol: produce {size} B", sides, works)
    for size in SIZES_BYTES:
        works = [partial(_consume_kafka, one, _kafka_topic(one, size), size) for one in sides]
        yield Figure.of(f"Kafka protocol: consume {size} B", sides, works)


# ── binary protocol ──


def _produce_binary(connect: Connect, size: int) -> int:
    """Produce batches of 16 KB, five in flight."""
    each = max(_BATCH_BYTES // size, 1)
    batch = build_values([b"x" * size] * each, timestamp_ms=time.time_ns() // 1_000_000)
    frame = m.ProduceBatchRequest(topic=f"binary-{size}", partition=0, acks=1, batches=batch).encode()
    requests = RECORDS[size] // each
    head, sent = memoryview(bytearray(4)), 0
    with connect() as connection:
        for answered in range(requests):
            while sent < min(requests, answered + _IN_FLIGHT):
                connection.sendall(frame)
                sent += 1
            read_exactly(connection, head)
            read_exactly(connection, memoryview(bytearray(struct.unpack(">I", head)[0] - 4)))
    return requests * each


def _fetch_binary(connect: Connect, size: int) -> int:
    """Fetch the first MiB again and again."""
    partition = m.FetchPartition(topic=f"binary-{size}", partition=0, offset=0, max_bytes=_FETCH_BYTES)
    request = m.FetchRequest(partitions=[partition], max_bytes=_FETCH_BYTES).encode()
    buffer, total = memoryview(bytearray(4 * _FETCH_BYTES)), 0
    with connect() as connection:
        while total < RECORDS[size] * size:
            connection.sendall(request)
            read_exactly(connection, buffer[:4])
            (length,) = struct.unpack_from(">I", buffer)
            assert length > _FETCH_BYTES // 2, "the response has fewer records than there are"
            read_exactly(connection, buffer[4:length])
            total += length
    return total // size


# ── HTTP ──

OpenHttp = Callable[[], http.client.HTTPConnection]


def _call(connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None = None) -> bytes:
    headers = {} if body is None else {"content-type": "application/x-ndjson"}
    connection.request(method, path, body=body, headers=headers)
    answer = connection.getresponse()
    content = answer.read()
    if answer.status != 200:
        raise RuntimeError(f"{method} {path}: {answer.status} {content[:200]!r}")
    return content


def _produce_http(open_http: OpenHttp, size: int) -> int:
    lines = (json.dumps({"value": "x" * size}) + "\n").encode() * _HTTP_BATCH
    requests = RECORDS[size] // _HTTP_SHARE // _HTTP_BATCH
    connection = open_http()
    for _ in range(requests):
        _call(connection, "POST", f"/v1/topics/http-{size}/records?acks=1", lines)
    connection.close()
    return requests * _HTTP_BATCH


def _read_http(open_http: OpenHttp, size: int) -> int:
    requests = RECORDS[size] // _HTTP_SHARE // _HTTP_BATCH
    connection = open_http()
    for _ in range(requests):
        path = f"/v1/topics/http-{size}/partitions/0/records?from=0&limit={_HTTP_BATCH}"
        _call(connection, "GET", path)
    connection.close()
    return requests * _HTTP_BATCH


# ── the brokers ──


@contextmanager
def apache_kafka(
    folder: Path, certificate: Path, key: Path
) -> Generator[tuple[RunningSubject, RunningSubject]]:
    """One node with a listener of either kind."""
    host = "127.0.0.1"
    plain, controller, over_tls = free_ports(3, host)
    store = folder / "kafka.pem"
    store.write_bytes(key.read_bytes() + certificate.read_bytes())
    clients = f"PLAINTEXT://{host}:{plain},SSL://{host}:{over_tls}"
    kafka = ApacheKafka(
        folder / "kafka",
        properties={
            "listeners": f"{clients},CONTROLLER://{host}:{controller}",
            "advertised.listeners": clients,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(store),
        },
        cluster=NodeOfCluster(random_cluster_id(), plain, controller),
    )
    try:
        kafka.start()
        yield (
            RunningSubject("Apache Kafka", f"{host}:{over_tls}", kafka.pid, _trusting(certificate)),
            RunningSubject("Apache Kafka", f"{host}:{plain}", kafka.pid),
        )
    finally:
        kafka.stop()


def _trusting(certificate: Path) -> dict[str, str]:
    return {"security.protocol": "SSL", "ssl.ca.location": str(certificate)}


def stele_figures(over_tls: BrokerProcess, plain: BrokerProcess, certificate: Path) -> Iterator[Figure]:
    context = ssl.create_default_context(cafile=str(certificate))
    brokers = over_tls, plain
    yield from kafka_figures(
        RunningSubject("Stele", over_tls.kafka_bootstrap, over_tls.pid, _trusting(certificate)),
        RunningSubject("Stele", plain.kafka_bootstrap, plain.pid),
    )
    binary = connector(over_tls.binary_port, context), connector(plain.binary_port, None)
    https = (
        partial(http.client.HTTPSConnection, over_tls.host, over_tls.http_port, context=context),
        partial(http.client.HTTPConnection, plain.host, plain.http_port),
    )
    for size in SIZES_BYTES:
        for what, work in (("produce", _produce_binary), ("fetch", _fetch_binary)):
            works = [partial(work, one, size) for one in binary]
            yield Figure.of(f"binary protocol: {what} {size} B", brokers, works)
        for what, call in (("produce NDJSON", _produce_http), ("read JSON", _read_http)):
            works = [partial(call, one, size) for one in https]
            yield Figure.of(f"HTTP: {what} {size} B", brokers, works)


def show(broker: str, figures: Iterator[Figure]) -> None:
    for figure in figures:
        compared: Comparison = in_turn(figure.with_tls, figure.without, rounds=ROUNDS)
        tls, plain = statistics.median(compared.ours), statistics.median(compared.yardstick)
        spread = f"{min(compared.ratios):.2f}–{max(compared.ratios):.2f}"
        print(
            f"| {broker}, {figure.what} | {tls:,.0f} records | {plain:,.0f} | {compared.ratio:.2f} × ({spread}) |",
            flush=True,
        )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--without-kafka", action="store_true", help="do not measure Apache Kafka")
    options = parser.parse_args(arguments)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stele-tls-")))
        certificate, key = write_certificate(folder, ec.generate_private_key(ec.SECP256R1()))
        tls = BrokerTls(certificate_file=certificate, key_file=key, ca_file=certificate)
        quiet = ("--log-level", "warning")
        over_tls = stack.enter_context(run_broker(tls=tls, arguments=quiet))
        plain = stack.enter_context(run_broker(arguments=quiet))
        print(
            "| per second of CPU time of the broker | with TLS | plaintext | ratio (rounds) |\n|---|---|---|---|"
        )
        show("Stele", stele_figures(over_tls, plain, certificate))
        if not options.without_kafka:
            show(
                "Apache Kafka",
                kafka_figures(*stack.enter_context(apache_kafka(folder, certificate, key))),
            )


if __name__ == "__main__":
    main()
