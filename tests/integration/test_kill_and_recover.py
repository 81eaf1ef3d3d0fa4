"""kill -9 in the middle of produce, again and again on the same data, and a full disk in between.

``tests/support/kills`` has the clients of all protocols, and the checks that nothing acknowledged is lost, changed or
there twice.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from load.postgres_server import PostgresServer
from tests.support.kills.run import kill_and_recover
from tests.support.postgres import postgres_bin
from tests.support.small_disk import small_disk

KILLS = 6
SHARED_KILLS = 1
LONG_KILLS = 30
TORTURE_KILLS = int(os.environ.get("STELE_TORTURE_ROUNDS", "200"))
DISK_BYTES = 192 << 20


async def test_nothing_acked_is_lost_or_doubled_by_kills_in_the_middle_of_produce(tmp_path: Path) -> None:
    await kill_and_recover(tmp_path, KILLS, random.randrange(2**32))


@pytest.mark.long
async def test_nothing_acked_is_lost_or_doubled_when_the_broker_keeps_no_records(tmp_path: Path) -> None:
    def empty() -> None:
        """Delete what the broker has on this machine, except for the catalog and the groups."""
        for path in tmp_path.iterdir():
            if not path.name.startswith(("metadata.sqlite", "groups.sqlite")):
                assert path.is_file(), "there is no partition here"
                path.unlink()

    with PostgresServer(postgres_bin(), fsync="off") as server:
        shared = {"STELE_STORAGE": "shared", "STELE_POSTGRES_URL": server.dsn}
        await kill_and_recover(
            tmp_path, SHARED_KILLS, random.randrange(2**32), environment=shared, before_start=empty
        )


@pytest.mark.long
async def test_nothing_acked_is_lost_or_doubled_by_kills_before_and_after_full_disks(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", size_bytes=DISK_BYTES) as disk:
        await kill_and_recover(
            disk.path / "data", LONG_KILLS, random.randrange(2**32), disk=disk, full_disks=3
        )


@pytest.mark.torture
async def test_nothing_acked_is_lost_or_doubled_by_very_many_kills(tmp_path: Path) -> None:
    await kill_and_recover(tmp_path, TORTURE_KILLS, random.randrange(2**32))
