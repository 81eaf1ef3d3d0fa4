"""Spans of a real broker, as they arrive at a collector: a small HTTP server that reads OTLP."""

from __future__ import annotations

import gzip
import os
import queue
import re
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer
from stele.testing import run_broker

from tests.support.batches import batch_of
from tests.support.kafka_peer import TIMEOUT_S, KafkaPeer, create_topic, fetch, produce

TRACE = "0af7651916cd43dd8448eb211c80319c"


class Collector(ThreadingHTTPServer):
    """Keeps the spans that were sent to it, by name, each with its attributes."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.spans: queue.Queue[tuple[str, str, dict[str, Any]]] = queue.Queue()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def taken(self) -> list[tuple[str, str, dict[str, Any]]]:
        """All that came by now."""
        return [self.spans.get() for _ in range(self.spans.qsize())]


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        sent: Any = ExportTraceServiceRequest.FromString(body)
        assert isinstance(self.server, Collector)
        for resource in sent.resource_spans:
            service = {one.key: one.value.string_value for one in resource.resource.attributes}
            for scope in resource.scope_spans:
                for span in scope.spans:
                    attributes = {one.key: one.value.string_value for one in span.attributes}
                    self.server.spans.put((span.name, span.trace_id.hex(), {**service, **attributes}))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base's name)
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    server = Collector()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_requests_of_http_and_kafka_are_spans_in_the_trace_of_their_caller(collector: Collector) -> None:
    environment = {"STELE_OTEL_ENABLE": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}
    with run_broker(environment=environment) as broker:
        answer = httpx.post(
            f"{broker.http_url}/v1/topics/orders/records",
            json={"records": [{"value": "x"}]},
            headers={"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"},
        )
        assert answer.status_code == 200
        httpx.get(f"{broker.http_url}/healthz")
        producer = Producer({"bootstrap.servers": broker.kafka_bootstrap, "client.id": "traced"})
        producer.produce("orders", b"y")
        producer.flush()
        # What is not sent by then is sent at the end.
        assert broker.stop() == 0
    spans = {name: (trace, attributes) for name, trace, attributes in collector.taken()}
    trace, attributes = spans["POST /v1/topics/{topic}/records"]
    assert trace == TRACE
    assert attributes["service.name"] == "stele"
    _, attributes = spans["kafka Produce"]
    assert attributes["messaging.client.id"] == "traced"
    assert not [name for name in spans if "healthz" in name or "send" in name]


def test_polled_routes_have_no_span_but_routes_with_similar_names_have(
    collector: Collector,
) -> None:
    environment = {"STELE_OTEL_ENABLE": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}
    names = ("app-metrics", "healthz-x", "metrics", "readyz")
    with run_broker(environment=environment) as broker, httpx.Client(base_url=broker.http_url) as http:
        for name in names:
            http.put(f"/v1/topics/{name}").raise_for_status()
        page = http.get("/", headers={"host": "metrics.localhost"})
        asset = re.search(r'"(/console/static/[^"]+)"', page.text)
        assert asset
        for path in (asset[1], "/healthz", "/readyz", "/metrics"):
            assert http.get(path).status_code == 200
        assert broker.stop() == 0
    spans = Counter(name for name, _, _ in collector.taken())
    assert spans == {"PUT /v1/topics/{topic}": len(names), "GET /": 1}


def test_a_request_that_gets_no_response_has_a_span_that_ends(collector: Collector) -> None:
    environment = {
        "STELE_OTEL_ENABLE": "true",
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_BSP_SCHEDULE_DELAY": "50",
    }

    def comes(wanted: str) -> None:
        while collector.spans.get(timeout=TIMEOUT_S)[0] != wanted:
            pass

    with (
        run_broker(environment=environment, arguments=["--trace-connections"]) as broker,
        KafkaPeer(broker) as peer,
    ):
        create_topic(peer, "orders")
        for _ in range(3):
            peer.post(produce("orders", batch_of([b"x"]), acks=0), 9)
        for _ in range(3):
            comes("kafka Produce")
        peer.post(fetch("orders", 3, max_wait_ms=60_000), 11)
        deadline_s = time.monotonic() + TIMEOUT_S
        while "> Fetch" not in broker.stderr:
            assert time.monotonic() < deadline_s, broker.stderr
        # No reader waits for it.
        peer.reset()
        comes("kafka Fetch")


@pytest.mark.long
def test_a_missing_package_is_named(tmp_path: Path) -> None:
    without = "import sys; sys.modules['opentelemetry'] = None; from stele.cli import main; main(['serve'])"
    environment = os.environ | {
        "STELE_OTEL_ENABLE": "true",
        "STELE_DATA_DIR": str(tmp_path),
        **{f"STELE_{listener}_PORT": "0" for listener in ("HTTP", "BINARY", "KAFKA")},
    }
    done = subprocess.run(
        [sys.executable, "-c", without], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "pip install 'stele-broker[otel]'" in done.stderr


def test_a_collector_that_never_answers_does_not_hold_up_the_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        environment = {
            "STELE_OTEL_ENABLE": "true",
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{silent.getsockname()[1]}",
            # An hour, in whichever unit.
            "OTEL_EXPORTER_OTLP_TIMEOUT": "3600000",
        }
        with run_broker(environment=environment) as broker:
            assert httpx.get(f"{broker.http_url}/v1/topics").status_code == 200
            assert broker.stop() == 0
            assert "the collector did not take all spans" in broker.stderr


@pytest.mark.long
def test_a_collector_that_is_away_costs_no_request() -> None:
    environment = {"STELE_OTEL_ENABLE": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
    with run_broker(environment=environment) as broker:
        for _ in range(20):
            answer = httpx.post(
                f"{broker.http_url}/v1/topics/orders/records", json={"records": [{"value": "x"}]}
            )
            assert answer.status_code == 200
        assert broker.stop() == 0
