"""A broker that is cut off from PostgreSQL is not ready for new clients, and is again when it is back."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from load.postgres_server import PostgresServer
from tests.support.brokers import run_brokers
from tests.support.waiting import eventually


@pytest.mark.long
def test_a_broker_without_postgresql_is_not_ready(own_server: PostgresServer, tmp_path: Path) -> None:
    with (
        run_brokers(
            tmp_path, own_server.dsn, 1, environment={"STELE_BROKER_SESSION_TIMEOUT_MS": "4000"}
        ) as brokers,
        brokers.http(1) as http,
    ):
        assert http.get("/readyz").status_code == 200
        own_server.stop_immediately()
        answer: httpx.Response | None = None

        def is_unready() -> bool:
            nonlocal answer
            answer = http.get("/readyz")
            return answer.status_code == 503

        eventually(is_unready, "the broker is not ready")
        assert answer is not None
        assert "no heartbeat has reached PostgreSQL" in answer.text
        assert http.get("/healthz").status_code == 200
        own_server.start()
        eventually(lambda: http.get("/readyz").status_code == 200, "it is ready again")
