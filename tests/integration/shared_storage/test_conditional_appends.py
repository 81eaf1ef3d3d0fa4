"""Appends that depend on the end of a partition, at several brokers over one PostgreSQL."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from stele import Client, UnexpectedEndError

from load.postgres_server import PostgresServer
from tests.support.brokers import run_brokers
from tests.support.counting import TOPIC, CountingWriter, check_counter
from tests.support.waiting import Pauses

WRITERS, INCREMENTS, KILLS, RACES = 6, 15, 3, 30


def test_exactly_one_of_two_brokers_stores_a_record_at_an_end(server: PostgresServer, tmp_path: Path) -> None:
    with run_brokers(tmp_path, server.dsn, 2) as brokers, ThreadPoolExecutor(2) as threads:
        clients = [Client(brokers[1].binary_url), Client(brokers[2].http_url)]
        clients[0].create_topic("raced", partitions=1)
        start = Barrier(2)

        def race(number: int) -> tuple[list[int], list[int]]:
            """Return the offset of each race that was won, and the actual end of each that was lost."""
            won: list[int] = []
            lost: list[int] = []
            for end in range(RACES):
                start.wait()
                try:
                    won.append(
                        clients[number].produce("raced", b"%d" % number, partition=0, expected_end=end).offset
                    )
                except UnexpectedEndError as error:
                    lost.append(error.log_end_offset)
            return won, lost

        (won, lost), (won_by_other, lost_by_other) = threads.map(race, range(2))
        assert sorted(won + won_by_other) == list(range(RACES))
        assert [end - 1 for end in lost] == won_by_other
        assert [end - 1 for end in lost_by_other] == won
        for client in clients:
            values = [record.value for record in client.fetch("raced").records]
            assert values == [b"0" if offset in won else b"1" for offset in range(RACES)]
            client.close()


@pytest.mark.long
def test_a_counter_over_two_brokers_counts_each_increment_once_while_they_are_killed(
    server: PostgresServer, tmp_path: Path
) -> None:
    with run_brokers(tmp_path, server.dsn, 2) as brokers:
        with Client(brokers[1].binary_url) as client:
            client.create_topic(TOPIC, partitions=1)

        def url_of(number: int) -> str:
            # Each writer changes to the other broker when its own is dead.
            at = 1 + number % 2
            broker = brokers[at] if brokers[at].is_running else brokers[3 - at]
            return broker.binary_url if number % 3 else broker.http_url

        writers = [CountingWriter(number, lambda number=number: url_of(number)) for number in range(WRITERS)]
        with ThreadPoolExecutor(WRITERS) as threads:
            running = [threads.submit(writer.run, INCREMENTS) for writer in writers]
            for kill in range(1, KILLS + 1):
                pauses = Pauses()
                while sum(len(one.offsets) for one in writers) < kill * WRITERS * INCREMENTS // (KILLS + 1):
                    assert not any(one.done() and one.exception() for one in running)
                    pauses.pause()
                broker = brokers[1 + kill % 2]
                broker.kill()
                broker.start()
            for one in running:
                one.result()
        assert any(writer.refusals for writer in writers)
        with Client(brokers[2].binary_url) as client:
            check_counter(client, writers, INCREMENTS)
