"""Settings of a role for interactive use do not apply to connections of the connector."""

from __future__ import annotations

import pytest
from stele.cdc.postgres.connection import connect

from load.postgres_server import PostgresServer
from tests.support.postgres import installed_releases


@pytest.mark.long
@pytest.mark.parametrize("replication", [False, True], ids=["ordinary", "replication"])
def test_no_timeout_of_a_role_ends_a_copy(replication: bool) -> None:
    """The settings are those that each installed release has, so that one of a newer release is not overlooked."""
    for bin_dir in installed_releases().values():
        with PostgresServer(bin_dir) as pg:
            names = pg.run(
                "SELECT name FROM pg_settings WHERE name LIKE '%%_timeout' AND context = 'user' "
                # Those of connections that do not answer.
                "AND name NOT IN ('wal_sender_timeout', 'tcp_user_timeout')"
            )
            for (name,) in names:
                pg.run(f"ALTER ROLE postgres SET {name} = '1h'")
            connection = connect(pg.dsn, replication=replication)
            try:
                with connection.cursor() as cursor:
                    for (name,) in names:
                        cursor.execute(f"SHOW {name}")
                        assert cursor.fetchone() == ("0",), name
            finally:
                connection.close()
