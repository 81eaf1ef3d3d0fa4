"""Measure NDJSON produce over HTTP against a FastAPI route that only parses.

The route reads the same body and stores nothing.
"""

from __future__ import annotations

import http.client
import time
from urllib.parse import urlsplit

from .broker_process import running_broker
from .measure import in_turn, report
from .yardsticks import yardstick_server

RECORDS = 100_000


def body_of(records: int) -> bytes:
    return b"".join(
        b'{"key":"N%05d","value":{"flight":%d,"origin":"EWR","dest":"IAH","delay":%d,"carrier":"UA"}}\n'
        % (i % 4000, i, i % 90)
        for i in range(records)
    )


def post_rate(port: int, path: str, body: bytes) -> float:
    """Return records per second, from the first byte sent to the whole answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    start = time.perf_counter()
    connection.request("POST", path, body, {"Content-Type": "application/x-ndjson"})
    answer = connection.getresponse()
    content = answer.read()
    seconds = time.perf_counter() - start
    connection.close()
    if answer.status != 200:
        raise RuntimeError(f"{answer.status}: {content[:500]!r}")
    return RECORDS / seconds


def main() -> None:
    body = body_of(RECORDS)
    with running_broker("--log-level", "warning") as broker, yardstick_server("ndjson") as port:
        ours = urlsplit(broker.http_url).port
        assert ours is not None
        for acks, receipt in (("1", "appended"), ("all", "synced")):
            path = f"/v1/topics/bench-{acks}/records?acks={acks}"
            comparison = in_turn(
                lambda path=path: post_rate(ours, path, body), lambda: post_rate(port, "/parse", body)
            )
            report(
                f"HTTP NDJSON produce of {RECORDS:,} records, acks={acks} ({receipt}), a result for each record",
                comparison,
                unit="records/s",
                yardstick="FastAPI, msgspec parses each line, stores nothing, answers one number",
                goal=0.4,
            )


if __name__ == "__main__":
    main()
