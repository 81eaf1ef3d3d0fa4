"""Transfers of money over all protocols at once, while the broker and its clients are killed.

Each transfer is a transaction over several topics. At every moment every reader of committed records, over each
protocol, finds transfers as a whole and balances that add up; what was answered with success is there exactly
once, what was aborted is not there.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest
from stele import Client
from stele.broker_process import BrokerProcess, run_broker
from stele.errors import CoordinatorUnavailableError
from stele.operations.transactional import InitTransactions

from tests.support.bank import (
    LEASE_TOPIC,
    OFFSET_PLACE,
    OPENING,
    PARTITIONS,
    PLACES,
    TOPICS,
    TOTAL,
    Books,
)
from tests.support.bank_audit import Audit
from tests.support.bank_readers import KafkaReader, Reader, SteleReader
from tests.support.bank_tellers import TellerProcess, offsets_group
from tests.support.kafka_peer import KafkaPeer

ROUNDS = 8
TORTURE_ROUNDS = int(os.environ.get("STELE_TORTURE_ROUNDS", "200"))
KINDS = (
    "confluent-kafka",
    "confluent-kafka",
    "kafka-python",
    "http-request",
    "http-request",
    "http-client",
    "binary",
    "binary",
)
TRANSFERS_PER_ROUND_MAX = 150
# Longer than a restart of the broker and of the client takes.
TRANSACTION_TIMEOUT_S = 60.0
# Frozen processes are fenced within this time, which is the chance of the others to read on.
SHORT_TIMEOUT_S = 2.0
TIMEOUT_S = 120.0
# A kill meets rolls of segments, checkpoints and syncs, too.
SETTINGS = {
    "STELE_TRANSACTION_CHECK_INTERVAL_MS": "200",
    "STELE_LOG_CHECKPOINT_INTERVAL_MS": "50",
    "STELE_LOG_FLUSH_INTERVAL_MS": "20",
    "STELE_IDEMPOTENCY_KEYS_MAX": "100",
}


def open_bank(broker: BrokerProcess) -> None:
    with Client(broker.http_url) as client:
        for topic in TOPICS:
            client.create_topic(topic, partitions=PARTITIONS, configs={"segment.bytes": "65536"})
        client.produce(LEASE_TOPIC, b"for a lease")
        with client.transaction("opening") as tx:
            for place, values in OPENING.values().items():
                for value in values:
                    tx.produce(place.topic, value, partition=place.partition)


def readers_of(broker: BrokerProcess) -> list[Reader]:
    return [SteleReader(broker.http_url), SteleReader(broker.binary_url), KafkaReader(broker.kafka_bootstrap)]


def run_the_bank(tmp_path: Path, *, rounds: int, seed: int) -> None:
    print(f"seed {seed}")
    chance = random.Random(seed)
    books = Books()
    with run_broker(tmp_path / "data", environment=SETTINGS) as broker:
        open_bank(broker)
        tellers = [
            TellerProcess(
                kind,
                f"{kind}-{number}",
                broker,
                books,
                tmp_path / f"{kind}-{number}.stderr",
                timeout_s=SHORT_TIMEOUT_S if number % 2 else TRANSACTION_TIMEOUT_S,
            )
            for number, kind in enumerate(KINDS)
        ]
        readers = readers_of(broker)
        try:
            for teller in tellers:
                teller.start()
            for reader in readers:
                reader.start()
            disturb(broker, books, tellers, readers, rounds=rounds, chance=chance)
            end_everything(broker, tellers)
            for reader in readers:
                reader.finish()
        finally:
            for teller in tellers:
                teller.kill()
            for reader in readers:
                reader.stop()
        # They read while all of it happened, these read it afterwards.
        readers += [read_again(reader) for reader in readers_of(broker)]
        first = check_everything(broker, books, tellers, readers)
        broker.kill()
        broker.start()
        again = check_everything(broker, books, tellers, [read_again(one) for one in readers_of(broker)])
        assert again.partitions == first.partitions
        assert broker.stop() == 0
    for reader in readers[:3]:
        print(
            f"{reader.name}: {reader.moments} moments, {reader.view.whole_moments} of them with every transfer "
            f"whole, {len(reader.view.withheld)} records held back by others"
        )
        assert reader.moments > rounds
    print(f"{rounds} kills, {len(books.committed)} transfers committed, {len(books.aborted)} aborted")


def disturb(
    broker: BrokerProcess,
    books: Books,
    tellers: Sequence[TellerProcess],
    readers: Sequence[Reader],
    *,
    rounds: int,
    chance: random.Random,
) -> None:
    """Kill the broker, kill tellers, freeze tellers, again and again, each after some transfers."""
    frozen: TellerProcess | None = None

    def check() -> None:
        for teller in tellers:
            teller.check()
        for reader in readers:
            reader.check()

    for number in range(rounds):
        books.await_committed(chance.randint(1, TRANSFERS_PER_ROUND_MAX), check=check, timeout_s=TIMEOUT_S)
        if frozen is not None:
            frozen.thaw()
            frozen = None
        # Each kind of disturbance comes even in the fewest rounds.
        match number % 4:
            case 0 | 2:
                broker.kill()
                victims = chance.sample(list(tellers), chance.choice((0, 0, 2)))
                for teller in victims:
                    teller.kill()
                broker.start()
                for teller in victims:
                    teller.start()
            case 1:
                for teller in chance.sample(list(tellers), 3):
                    teller.kill()
                    teller.start()
            case _:
                frozen = chance.choice(tellers)
                frozen.freeze()
    if frozen is not None:
        frozen.thaw()
    books.await_committed(50, check=check, timeout_s=TIMEOUT_S)
    for teller in tellers:
        teller.stop()


def end_everything(broker: BrokerProcess, tellers: Sequence[TellerProcess]) -> None:
    """Fence all tellers, which aborts what they have left open."""
    give_up_s = time.monotonic() + TIMEOUT_S
    with Client(broker.binary_url) as client:
        for teller in tellers:
            while True:
                try:
                    client.call(InitTransactions(transactional_id=teller.name, timeout_ms=1000))
                except CoordinatorUnavailableError:
                    assert time.monotonic() < give_up_s, f"{teller.name} cannot begin again"
                    time.sleep(0.01)
                    continue
                break
    listed = httpx.get(f"{broker.http_url}/v1/transactions", params={"state": "Ongoing"}).json()
    assert not listed["transactions"], listed


def read_again(reader: Reader) -> Reader:
    reader.start()
    reader.finish()
    return reader


def check_everything(
    broker: BrokerProcess, books: Books, tellers: Sequence[TellerProcess], readers: Sequence[Reader]
) -> Audit:
    with KafkaPeer(broker) as peer:
        audit = Audit(peer)
    assert not books.committed - audit.transfers, "transfers were lost"
    assert not books.aborted & audit.transfers, "transfers were aborted, and are there"
    assert audit.transfers <= set(books.outcomes)
    for reader in readers:
        assert set(reader.view.transfers) == audit.transfers, reader.name
        assert reader.view.balances == TOTAL
        audit.check_withheld(reader.view.withheld)
    with Client(broker.binary_url) as client:
        for place in PLACES:
            ends = [
                client.list_offset(*place, isolation=level)
                for level in ("read_committed", "read_uncommitted")
            ]
            assert ends == [audit.partitions[place].end] * 2, place
        for teller in tellers:
            if teller.has_offsets:
                # It was committed with the last transfer, and with no transfer that was aborted.
                last = max(
                    int(name.rpartition("/")[2])
                    for name in audit.transfers
                    if name.startswith(f"{teller.name}/")
                )
                assert client.committed(offsets_group(teller.name), OFFSET_PLACE) == last + 1, teller.name
    return audit


@pytest.mark.long
def test_money_is_neither_made_nor_lost_by_kills_of_broker_and_clients(tmp_path: Path) -> None:
    run_the_bank(tmp_path, rounds=ROUNDS, seed=random.randrange(2**32))


@pytest.mark.torture
def test_money_is_neither_made_nor_lost_by_very_many_kills(tmp_path: Path) -> None:
    run_the_bank(tmp_path, rounds=TORTURE_ROUNDS, seed=random.randrange(2**32))
