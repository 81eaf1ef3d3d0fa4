"""``stele cdc`` against a broker that requires TLS and logins, as a user who has the rights of docs/cdc.md and no others."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from stele.records import Record

from load.postgres_server import PostgresServer
from tests.support.cdc import Replay, running_cdc
from tests.support.locked_broker import locked_broker

pytestmark = pytest.mark.long

# The connector logs in again before a session ends.
SESSION_MS = 6000
LOGINS = 3
TOPIC = "pg.public.orders"


class FramedReplay(Replay):
    """Leaves out the id of the schema before the JSON of a value."""

    def _take(self, record: Record[bytes], partitions: int) -> None:
        super()._take(replace(record, value=record.value and record.value[5:]), partitions)


def test_the_connector_is_a_user_with_rights_on_its_topics(
    pg: PostgresServer, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pg.run("CREATE TABLE orders (id int PRIMARY KEY, item text)")
    pg.run("INSERT INTO orders VALUES (1, 'pen')")
    with locked_broker(tmp_path, session_ms=SESSION_MS) as locked:
        user = locked.add_user()
        monkeypatch.setenv("STELE_CA_FILE", str(locked.ca_file))
        monkeypatch.setenv("STELE_PASSWORD_FILE", str(locked.password_file()))
        url = f"stele+tls://{user}@{locked.binary_address}"

        with running_cdc(pg, url, log, "--tables", "public.orders") as cdc:
            assert cdc.wait() == 1
            assert f"User:{user} is not allowed to read topic '__cdc.pg.stele'" in cdc.said

        for operation in ("CREATE", "READ", "WRITE"):
            locked.allow(user, operation, "TOPIC", "pg.", pattern="PREFIXED")
            locked.allow(user, operation, "TOPIC", "__cdc.pg.stele")
            locked.allow(user, operation, "TOPIC", "__cdc_positions.pg.stele")
        for operation in ("CREATE", "WRITE"):
            locked.allow(user, operation, "TOPIC", "pgcdc.", pattern="PREFIXED")
        for operation in ("READ", "WRITE", "DESCRIBE"):
            locked.allow(user, operation, "SUBJECT", "pg.", pattern="PREFIXED")
        locked.allow(user, "WRITE", "TRANSACTIONAL_ID", "cdc/pg/stele/", pattern="PREFIXED")
        replay = FramedReplay(locked.binary_url, TOPIC)

        def has_read(rows: int) -> bool:
            return len(replay.records) == rows

        registry = f"https://{user}@{locked.process.host}:{locked.process.registry_port}"
        channels = ("--channels", "pgcdc:orders")
        schemas = ("--format", "json-schema", "--registry", registry)
        with running_cdc(pg, url, log, "--tables", "public.orders", *channels, *schemas) as cdc:
            rows = 1
            replay.read_until(partial(has_read, rows), check=cdc.check)
            # No connection outlives its session without another login.
            while max(locked.logins(user, listener="binary").values()) < LOGINS:
                rows += 1
                pg.run(f"INSERT INTO orders VALUES ({rows}, 'ink')")
                # The first ones are lost if the connector does not listen yet.
                pg.run("NOTIFY \"pgcdc:orders\", 'noticed'")
                replay.read_until(partial(has_read, rows), check=cdc.check)
            assert cdc.stop() == 0
        assert set(locked.values("pgcdc.orders")) == {b"noticed"}
    assert set(replay.table()) == set(range(1, rows + 1))
