"""PostgreSQL fails over to a synchronous standby, which has every acknowledged record."""

from __future__ import annotations

from pathlib import Path

import pytest
from stele import Client, SteleClientError, TopicPartition

from load.postgres_server import PostgresServer
from tests.support.brokers import run_brokers
from tests.support.postgres import programs_for_standbys
from tests.support.waiting import eventually

pytestmark = pytest.mark.long

PARTITION = TopicPartition("orders", 0)


def test_acknowledged_records_outlive_the_primary(tmp_path: Path) -> None:
    programs = programs_for_standbys()
    with PostgresServer(programs) as primary, PostgresServer(programs, primary=primary.dsn) as standby:
        primary.run("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
        primary.run("SELECT pg_reload_conf()")
        eventually(
            lambda: bool(primary.run("SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'")),
            "the standby is synchronous",
        )
        url = f"postgresql://postgres@127.0.0.1:{primary.port},127.0.0.1:{standby.port}/postgres"
        with run_brokers(tmp_path, url, 2) as brokers, Client(brokers[1].binary_url) as client:
            assert "synchronous standby" not in brokers[1].stderr
            client.create_topic("orders")
            acknowledged = [produce(client, number, "replicated") for number in range(50)]
            with client.group("billing", "orders") as group, next(iter(group)):
                pass
            committed = client.committed("billing", PARTITION)
            assert committed

            primary.kill()
            standby.promote()

            # The new primary has no standby of its own, and says so.
            acknowledged += [produce(client, number, "synced") for number in range(50, 100)]
            stored: dict[int, bytes | None] = {}

            def is_served_elsewhere() -> bool:
                # A broker that nobody asked meanwhile may find with this request that its connections are gone.
                try:
                    with Client(brokers[2].http_url) as elsewhere:
                        records = elsewhere.fetch("orders", max_records=200).records
                        assert elsewhere.committed("billing", PARTITION) == committed
                except SteleClientError as error:
                    if not error.retriable:
                        raise
                    return False
                stored.update((record.offset, record.value) for record in records)
                return True

            eventually(is_served_elsewhere, "the other broker serves it, too")
            assert [stored[offset] for offset in acknowledged] == [b"%d" % number for number in range(100)]


def produce(client: Client, number: int, durability: str) -> int:
    receipt = client.produce("orders", b"%d" % number)
    assert receipt.durability.label == durability
    return receipt.offset
