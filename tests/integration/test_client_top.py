"""``stele top`` as a person runs it: once into a pipe, and live on a terminal."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
from stele.testing import BrokerProcess, run_broker

from tests.support.warm_processes import WarmProcess, run_stele


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with run_broker(environment={"STELE_SAMPLE_INTERVAL_MS": "100"}) as running:
        for name, records in (("orders", 7), ("crews", 3)):
            body = {"records": [{"value": "x"}] * records}
            httpx.post(f"{running.http_url}/v1/topics/{name}/records", json=body)
            httpx.post(f"{running.http_url}/v1/groups/of-{name}/poll", json={"topics": [name]})
        httpx.post(f"{running.http_url}/v1/groups/evil%1B%5B2J/poll", json={"topics": ["crews"]})
        yield running


def top(*arguments: str) -> subprocess.CompletedProcess[str]:
    done = run_stele("top", *arguments)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def test_once_prints_the_group_with_the_most_lag_first(broker: BrokerProcess) -> None:
    deadline_s = time.monotonic() + 30
    # The rates are those between two samples, the lag is that of the last one.
    awaited = (r"^http +\d+ +\S+ \w+ ", r"^of-crews .* 3$")
    while True:
        done = top("--once", "--url", broker.http_url)
        assert done.returncode == 0, done.stderr
        if all(re.search(line, done.stdout, re.MULTILINE) for line in awaited):
            break
        assert time.monotonic() < deadline_s, done.stdout
    assert re.search(r"stele \S+ · ready · up ", done.stdout)
    assert "2 topics, 2 partitions, 3 groups" in done.stdout
    assert "\x1b" not in done.stdout
    assert r"evil\x1b[2J" in done.stdout
    assert re.search(r"^of-orders .* (?:7|12)$\n^.*\n?^of-crews .* 3$", done.stdout, re.MULTILINE)


def test_an_unreachable_or_invalid_url_is_an_error() -> None:
    unreachable = top("--url", "http://127.0.0.1:1")
    assert unreachable.returncode == 1
    assert "http://127.0.0.1:1 cannot be reached" in unreachable.stderr
    over_binary = top("--url", "stele://127.0.0.1:1")
    assert over_binary.returncode == 1
    assert "no broker answers at 127.0.0.1:1" in over_binary.stderr
    no_address = top("--url", "http://[::1")
    assert no_address.returncode == 2
    assert "'http://…' is not a valid URL" in no_address.stderr


@pytest.mark.parametrize("body", [b"<html>Welcome</html>", b"[]", b'{"version": 7}', b"\xff"])
def test_a_server_that_is_not_a_broker_is_an_error(body: bytes) -> None:
    class Stranger(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base's name)
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Stranger) as server:
        threading.Thread(target=server.serve_forever).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        done = top("--once", "--url", url)
        server.shutdown()
    assert done.returncode == 1
    assert f"{url} did not answer like a Stele broker of this version" in done.stderr
    assert "Traceback" not in done.stderr


def test_it_is_live_on_a_terminal_and_gives_the_terminal_back(broker: BrokerProcess) -> None:
    ours, theirs = pty.openpty()
    environment = os.environ | {"STELE_URL": broker.http_url, "COLUMNS": "120", "LINES": "40"}
    process = WarmProcess(["top", "--interval", "0.2"], stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    seen = ""

    def read_until(pattern: str) -> None:
        nonlocal seen
        while not re.search(pattern, seen):
            piece = os.read(ours, 65536).decode()
            assert piece, seen
            seen += piece

    try:
        read_until(r"of-orders +\w+ +1 +7\x1b")
        body = {"records": [{"value": "x"}] * 5}
        httpx.post(f"{broker.http_url}/v1/topics/orders/records", json=body)
        read_until(r"of-orders +\w+ +1 +12\x1b")
        process.send_signal(signal.SIGINT)
        read_until(r"\x1b\[\?1049l")
        assert process.wait() == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
