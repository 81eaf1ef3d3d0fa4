"""A bucket that refuses deletions keeps what is too old, and gets new cuts all the same."""

from __future__ import annotations

import asyncio
import http.client
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from uuid import uuid4

import httpx
import pytest
from stele.testing import run_broker

from app.storage.shared.store.urls import open_object_store
from tests.support.s3_servers import use_test_credentials, versitygw
from tests.support.waiting import eventually

# Left by a broker that was killed between the object and the cut.
STRAY = f"d/{uuid4()}/000000000000.5"
_DENIED = b"<Error><Code>AccessDenied</Code><Message>no deletions</Message></Error>"


@contextmanager
def refusing(address: str) -> Generator[tuple[str, list[str]]]:
    """Pass requests on to ``address``, but for deletions of ``STRAY``; yield the proxy's address, and what it refused."""
    refused: list[str] = []

    class Proxy(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            is_deletion = self.command == "DELETE" or (self.command == "POST" and "delete" in self.path)
            if is_deletion and STRAY.encode() in self.path.encode() + body:
                refused.append(self.path)
                self._answer(403, {}, _DENIED)
                return
            upstream = http.client.HTTPConnection(address, timeout=60)
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                upstream.putheader(name, value)
            upstream.endheaders(body)
            answer = upstream.getresponse()
            data = answer.read()
            kept = {
                name: value
                for name, value in answer.getheaders()
                if name.lower() in ("etag", "last-modified")
            }
            if self.command == "HEAD":
                kept["Content-Length"] = answer.headers.get("content-length", "0")
            for name in ("Content-Range", "Content-Type"):
                if name in answer.headers:
                    kept[name] = answer.headers[name]
            self._answer(answer.status, kept, data)
            upstream.close()

        def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _pass_on  # noqa: N815

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_port}", refused
    finally:
        server.shutdown()
        server.server_close()


def test_deletions_that_fail_keep_no_cut_from_being_written() -> None:
    with pytest.MonkeyPatch.context() as patch, versitygw() as url:
        use_test_credentials(patch)
        asyncio.run(open_object_store(url).put(STRAY, b"stray"))
        address = url.rpartition("endpoint=http://")[2]
        with refusing(address) as (proxy, refused):
            environment = {
                "STELE_REPLICATE_TO": url.replace(address, proxy),
                "STELE_REPLICA_INTERVAL_MS": "100",
            }
            with (
                run_broker(environment=environment) as broker,
                httpx.Client(base_url=broker.http_url, timeout=60) as http,
            ):
                eventually(lambda: bool(refused), "the broker tries to delete what no cut names")
                at: int = http.get("/v1/overview").json()["now"]
                http.post("/v1/topics/orders/records", json={"records": [{"value": "x"}]}).raise_for_status()
                eventually(
                    lambda: (http.get("/v1/replica").json()["newest_cut"] or {"at": 0})["at"] > at,
                    "there is a cut with the record",
                )
                now = http.get("/v1/replica").json()
                assert now["state"] == "replicating"
                assert now["counts"]["failed_requests"] > 0
                assert now["oldest_restorable_at"] is not None
                assert "keeps what is too old until this succeeds: deleting objects" in broker.stderr
