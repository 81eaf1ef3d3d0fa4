"""A coordinator of groups that was paused, and replaced meanwhile, answers nothing that is out of date.

It joins again when it goes on, and gets its groups back.
"""

from __future__ import annotations

import json
from http.client import HTTPConnection
from pathlib import Path

import httpx
import pytest
from stele import Client
from stele.broker_process import BrokerProcess

from load.pausing import paused
from load.postgres_server import PostgresServer
from tests.support.brokers import Brokers, run_brokers
from tests.support.waiting import eventually

pytestmark = pytest.mark.long

_CONNECTIONS = 8


def commit(
    client: httpx.Client, offset: int, *, group: str = "readers", topic: str = "paused"
) -> httpx.Response:
    offsets = {"offsets": [{"topic": topic, "partition": 0, "offset": offset}]}
    return client.put(f"/v1/groups/{group}/offsets", json=offsets)


def joined_at(brokers: Brokers, broker_id: int) -> int | None:
    """Return when a broker has joined, as broker 1 knows; None if it counts as dead."""
    listed = brokers.cluster(1)["brokers"]
    return next((broker["started_at"] for broker in listed if broker["id"] == broker_id), None)


def http_peers(broker: BrokerProcess) -> set[str]:
    answer = httpx.get(f"{broker.http_url}/v1/connections", timeout=60)
    return {found["peer"] for found in answer.json()["connections"] if found["protocol"] == "http"}


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
        with brokers.http(old) as there:
            answer = commit(there, 1)
        assert answer.status_code == 200, answer.text
        # Connections that the broker has accepted: their requests are the first that it reads when it goes on.
        # It has answered none yet: between two requests it closes them after a few seconds.
        connections = [HTTPConnection(brokers[old].host, brokers[old].http_port) for _ in range(_CONNECTIONS)]
        for connection in connections:
            connection.connect()
        addresses = [connection.sock.getsockname() for connection in connections]
        peers = {f"{host}:{port}" for host, port in addresses}
        eventually(lambda: peers <= http_peers(brokers[old]), "the broker has accepted the connections")
        with paused(brokers[old].pid):
            for connection in connections:
                connection.request("GET", "/v1/groups/readers")
            with brokers.http(new) as elsewhere:
                eventually(lambda: commit(elsewhere, 7).status_code == 200, "the other broker coordinates")
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
        with brokers.http(new) as elsewhere:
            # Wherever the group is now.
            eventually(
                lambda: elsewhere.get("/v1/groups/readers").status_code == 200, "the group has a coordinator"
            )
            assert elsewhere.get("/v1/groups/readers").json()["partitions"][0]["committed"] == 7


def test_a_broker_that_was_paused_joins_again_and_gets_its_groups_back(
    server: PostgresServer, tmp_path: Path
) -> None:
    with run_brokers(tmp_path, server.dsn, 2) as brokers:
        # The last one to join was given its groups by the first one, a moment ago.
        second = 2
        group = next(name for name in map(str, range(1000)) if brokers.coordinator(name) == second)

        def commits(client: httpx.Client, offset: int) -> bool:
            return commit(client, offset, group=group, topic="returned").status_code == 200

        with Client(brokers[second].binary_url) as client:
            client.create_topic("returned")
            client.produce("returned", b"first")
        with brokers.http(second) as there:
            assert commits(there, 1)
        joined_ms = joined_at(brokers, second)
        assert joined_ms is not None
        with paused(brokers[second].pid):
            with brokers.http(1) as elsewhere:
                eventually(lambda: commits(elsewhere, 0), "the other broker coordinates")
            assert joined_at(brokers, second) is None, "the paused broker counts as dead"
        eventually(lambda: joined_at(brokers, second) is not None, "the broker is back")
        assert (joined_at(brokers, second) or 0) > joined_ms, "it has not joined again"
        # Each broker names it as the coordinator.
        assert brokers.coordinator(group) == second
        with brokers.http(second) as there:
            eventually(lambda: commits(there, 1), "the group is served")
            described = there.get(f"/v1/groups/{group}").json()
        assert described["partitions"][0]["committed"] == 1
