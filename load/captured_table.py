"""A table that gets row after row, and the connector that captures it."""

from __future__ import annotations

import threading
from typing import Any

import httpx
from stele.broker_process import BrokerProcess

from .postgres_server import PostgresServer

TABLE = "t"
TOPIC = f"pg.public.{TABLE}"
_LEASE = "cdc.pg.stele"
_TIMEOUT_S = 60.0


class Inserts(threading.Thread):
    """Inserts a row every ``interval_s``, each in a transaction of its own.

    ``count`` rows have been committed; their ids begin with 0.
    """

    def __init__(self, server: PostgresServer, *, interval_s: float) -> None:
        super().__init__(daemon=True)
        self._server = server
        self._interval_s = interval_s
        self._ended = threading.Event()
        self.count = 0

    def run(self) -> None:
        connection = self._server.connect()
        try:
            # A bounded rate: the brokers share the machine with this thread.
            while not self._ended.wait(self._interval_s):
                with connection, connection.cursor() as cursor:
                    cursor.execute(f"INSERT INTO {TABLE} (id) VALUES (%s)", (self.count,))
                self.count += 1
        finally:
            connection.close()

    def end(self) -> None:
        """Return when the last row has been committed."""
        self._ended.set()
        self.join()


def create_table(server: PostgresServer) -> None:
    """Create the table, without rows."""
    server.run(f"DROP TABLE IF EXISTS {TABLE}")
    server.run(f"CREATE TABLE {TABLE} (id int PRIMARY KEY, v text)")


def lease_holder(broker: BrokerProcess) -> int | None:
    """Return the id of the broker that has the lease of the connector.

    It is what ``broker`` knows; None if no broker has the lease.
    """
    leases = _get(broker, "/v1/cluster")["leases"]
    return leases.get(_LEASE, {}).get("broker_id")


def connector_state(broker: BrokerProcess) -> str:
    """Return the state of the connector at ``broker``: streaming, standby and so on."""
    (connector,) = _get(broker, "/v1/cdc")["connectors"]
    return connector["state"]


def _get(broker: BrokerProcess, path: str) -> Any:
    answer = httpx.get(f"{broker.http_url}{path}", timeout=_TIMEOUT_S)
    answer.raise_for_status()
    return answer.json()
