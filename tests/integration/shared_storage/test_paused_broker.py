"""A coordinator of groups that was paused, and replaced meanwhile, answers nothing that is out of date."""

from __future__ import annotations

import json
import os
import signal
from http.client import HTTPConnection
from pathlib import Path

import httpx
from stele import Client

from load.postgres_server import PostgresServer
from tests.support.brokers import Brokers, run_brokers
from tests.support.waiting import eventually

_CONNECTIONS = 8


def commit(client: httpx.Client, offset: int) -> httpx.Response:
    offsets = {"offsets": [{"topic": "paused", "partition": 0, "offset": offset}]}
    return client.put("/v1/groups/readers/offsets", json=offsets)


def client_of(brokers: Brokers, broker_id: int) -> httpx.Client:
    return httpx.Client(base_url=brokers[broker_id].http_url, timeout=60)


def test_requests_that_wait_for_a_paused_coordinator_get_no_old_offsets(
    server: PostgresServer, tmp_path: Path
) -> None:
    with run_brokers(tmp_path, server.dsn, 2) as brokers:
        old = brokers.coordinator("readers")
        new = 3 - old
        with Client(brokers[old].binary_url) as client:
            client.create_topic("paused")
            for number in range(10):
                client.produce("paused", str(number).encode())
        with client_of(brokers, old) as there:
            answer = commit(there, 1)
        assert answer.status_code == 200, answer.text
        pid = brokers[old].pid
        # Connections that the broker has accepted: their requests are the first that it reads when it goes on.
        connections = [HTTPConnection(brokers[old].host, brokers[old].http_port) for _ in range(_CONNECTIONS)]
        for connection in connections:
            connection.request("GET", "/healthz")
            assert connection.getresponse().read()
        os.kill(pid, signal.SIGSTOP)
        try:
            for connection in connections:
                connection.request("GET", "/v1/groups/readers")
            with client_of(brokers, new) as elsewhere:
                eventually(lambda: commit(elsewhere, 7).status_code == 200, "the other broker coordinates")
        finally:
            os.kill(pid, signal.SIGCONT)
        for connection in connections:
            response = connection.getresponse()
            document = json.loads(response.read())
            connection.close()
            if response.status == 200:
                # Its turn came after the broker learned of its successor and took the groups back.
                assert document["partitions"][0]["committed"] == 7
            else:
                assert (response.status, document["type"].rpartition("/")[2]) == (
                    503,
                    "coordinator-elsewhere",
                )
        with client_of(brokers, new) as elsewhere:
            # Wherever the group is now.
            eventually(
                lambda: elsewhere.get("/v1/groups/readers").status_code == 200, "the group has a coordinator"
            )
            assert elsewhere.get("/v1/groups/readers").json()["partitions"][0]["committed"] == 7
