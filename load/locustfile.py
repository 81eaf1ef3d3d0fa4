"""Load a broker over HTTP and the binary protocol at once, on the same topics.

``make load`` starts a broker, runs this for ``LOAD_SECONDS`` and writes a report.
Against a running broker::

    LOAD_BINARY_URL=stele://127.0.0.1:9009 locust -f load/locustfile.py --host http://127.0.0.1:8080

If the broker requires logins, set STELE_USER and STELE_PASSWORD, or STELE_API_KEY, as for
all clients. A login that the broker refuses ends the run before it begins.

Users wait for each answer before they go on, as programs do; the delay between
two requests is zero, so the number of users is what is under way at once.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from typing import Any, cast

import stele
from locust import FastHttpUser, User, constant, events, task
from locust.env import Environment
from stele.config import ClientConfig
from stele.wire.messages import Durability

BINARY_URL = os.environ.get("LOAD_BINARY_URL", "stele://127.0.0.1:9009")
TOPIC = "load"
PARTITIONS = 6
VALUE = b"x" * 100
RECORDS = 100
NDJSON = b"".join(b'{"key":"k%d","value":"%s"}\n' % (number, VALUE) for number in range(RECORDS))


@events.init.add_listener
def check_login(environment: Environment, **_: Any) -> None:
    """End the run if a broker refuses the login.

    Each request of each user would fail, and slow down the logins of others.
    """
    for url in (environment.host, BINARY_URL):
        if url is None:  # it is entered in the browser later
            continue
        try:
            with stele.Client(url) as client:
                client.topics()
        except stele.SteleClientError as error:
            raise SystemExit(f"{url}: {error}") from error


class HttpUser(FastHttpUser):
    """Writes and reads as a web application would: JSON, NDJSON, plain bytes."""

    wait_time = constant(0)

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        endpoint = ClientConfig(url=str(self.host)).endpoint
        if authorization := endpoint.credentials.authorization:
            self.client.auth_header = authorization

    def on_start(self) -> None:
        path = f"/v1/topics/{TOPIC}"
        with self.client.put(
            path, json={"partitions": PARTITIONS}, name="PUT /topics/{topic}", catch_response=True
        ) as answer:
            if answer.status_code not in (200, 201):
                answer.failure(f"{answer.status_code}: {answer.text}")

    @task(4)
    def produce_one_synced(self) -> None:
        record = {"key": f"k{random.randrange(1000)}", "value": VALUE.decode()}
        self._produce("POST records (1, JSON, all)", 1, json={"records": [record]})

    @task(2)
    def produce_ndjson(self) -> None:
        headers = {"content-type": "application/x-ndjson"}
        self._produce(f"POST records ({RECORDS}, NDJSON, all)", RECORDS, data=NDJSON, headers=headers)

    def _produce(self, name: str, records: int, **request: Any) -> None:
        with self.client.post(
            f"/v1/topics/{TOPIC}/records", name=name, catch_response=True, **request
        ) as answer:
            text = answer.text or ""
            # Only a receipt for every record, that says it is on disk, counts as a success.
            receipt = cast("dict[str, str]", answer.headers or {}).get("durability")
            is_synced = receipt == "synced" or '"durability":"synced"' in text
            if answer.status_code != 200 or text.count('"offset"') != records or not is_synced:
                answer.failure(f"{answer.status_code}: {text[:200]}")

    @task(3)
    def read_the_newest(self) -> None:
        partition = random.randrange(PARTITIONS)
        self.client.get(
            f"/v1/topics/{TOPIC}/partitions/{partition}/records?from=-1s&limit=100",
            name="GET records (from=-1s)",
        )

    @task(1)
    def read_from_the_start(self) -> None:
        partition = random.randrange(PARTITIONS)
        self.client.get(
            f"/v1/topics/{TOPIC}/partitions/{partition}/records?from=earliest&limit=1000",
            name="GET records (1000)",
        )


class BinaryUser(User):
    """The blocking client library over its own connection."""

    wait_time = constant(0)

    def on_start(self) -> None:
        self.stele = stele.Client(BINARY_URL)
        self.stele.ensure_topic(TOPIC, partitions=PARTITIONS)
        self.offsets = dict.fromkeys(range(PARTITIONS), 0)

    def on_stop(self) -> None:
        self.stele.close()

    def measure(self, name: str, call: Callable[[], int]) -> None:
        """Run ``call``, which returns the bytes it moved, and tell Locust how it went."""
        start_s = time.perf_counter()
        length, error = 0, None
        try:
            length = call()
        except stele.SteleClientError as failed:
            error = failed
        self.environment.events.request.fire(
            request_type="STELE",
            name=name,
            response_time=(time.perf_counter() - start_s) * 1000,
            response_length=length,
            exception=error,
            context=self.context(),
        )

    @task(4)
    def produce_simple(self) -> None:
        def call() -> int:
            self.stele.simple_produce(TOPIC, VALUE)
            return len(VALUE)

        self.measure("PRODUCE (1, appended)", call)

    @task(2)
    def produce_batches_synced(self) -> None:
        def call() -> int:
            records = [stele.NewRecord(value=VALUE, key=f"k{number}") for number in range(RECORDS)]
            receipts = self.stele.produce_many(TOPIC, records, acks="all")
            assert all(receipt.durability is Durability.SYNCED for receipt in receipts)
            return RECORDS * len(VALUE)

        self.measure(f"PRODUCE_BATCH ({RECORDS}, all)", call)

    @task(3)
    def fetch_on(self) -> None:
        partition = random.randrange(PARTITIONS)

        def call() -> int:
            page = self.stele.fetch(TOPIC, partition, self.offsets[partition], max_bytes=64 * 1024)
            offsets = [record.offset for record in page.records]
            # Order and no holes, under load: the log's first promise.
            first = self.offsets[partition]
            assert offsets == list(range(first, first + len(offsets)))
            self.offsets[partition] = page.next_offset
            return sum(len(record.value or b"") for record in page.records)

        self.measure("FETCH (64 KiB)", call)
