"""The releases of PostgreSQL that the tests of this directory run with."""

from __future__ import annotations

import os

import pytest

from load.postgres_server import PostgresServer
from tests.support.postgres import installed_releases

RELEASES = {15, 16, 17, 18}


@pytest.mark.long
def test_the_oldest_to_the_newest_release_are_tested() -> None:
    missing = RELEASES - installed_releases().keys()
    if missing:
        text = f"no PostgreSQL {sorted(missing)}: run tests/integration/install_postgres_versions.sh, pip install pgserver"
        if os.environ.get("CI"):
            pytest.fail(text)
        pytest.skip(text)


def test_the_server_is_of_the_release_in_the_name_of_the_test(
    server: PostgresServer, request: pytest.FixtureRequest
) -> None:
    ((number,),) = server.run("SHOW server_version_num")
    assert f"postgresql-{int(number) // 10_000}]" in request.node.name
