"""After a restore nothing is given out that may have been given out before it."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from uuid import UUID

import pytest
from stele.cdc.gaps import EPOCHS_OF_A_RESTORE

from app.cluster.catalog import TopicRecord
from app.cluster.group_store import OffsetRecord
from app.cluster.postgres.catalog import SKIPPED_EPOCHS
from app.cluster.sqlite.catalog import SqliteCatalog
from app.cluster.sqlite.groups import SqliteGroupStore
from app.cluster.sqlite.restored import EPOCHS_SKIPPED, DamagedStore, prepare_catalog, prepare_groups
from app.cluster.transaction_store import OutcomePartition, OutcomeRecord, TransactionRecord
from app.transactions.plans import Moment
from app.transactions.states import TransactionState
from app.transactions.transaction import Transaction

NOW_MS = 1_795_000_000_000
NOW = Moment(NOW_MS, 0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite"


def test_producer_ids_are_far_above_those_given_out(path: Path) -> None:
    catalog = SqliteCatalog(path)
    before = catalog.next_producer_id_block(1000)
    catalog.close()
    cut = path.read_bytes()
    firsts: list[int] = []
    for later_ms in (0, 1, 1000):
        path.write_bytes(cut)
        prepare_catalog(path, now_ms=NOW_MS + later_ms)
        catalog = SqliteCatalog(path)
        firsts.append(catalog.next_producer_id_block(1000))
        catalog.close()

    assert firsts[0] >= before + 1000 + 2**32
    # Another restore of the same cut, one ms later, gives out others.
    assert firsts[1] >= firsts[0] + 256
    assert firsts[2] >= firsts[0] + 256_000
    assert firsts[2] < 2**53


def test_producer_ids_rise_with_a_clock_that_is_wrong(path: Path) -> None:
    catalog = SqliteCatalog(path)
    before = catalog.next_producer_id_block(1000)
    catalog.close()

    prepare_catalog(path, now_ms=0)

    catalog = SqliteCatalog(path)
    assert catalog.next_producer_id_block(1) >= before + 1000 + 2**32
    catalog.close()


def test_producer_ids_of_a_broker_that_gave_out_none(path: Path) -> None:
    SqliteCatalog(path).close()

    prepare_catalog(path, now_ms=NOW_MS)

    catalog = SqliteCatalog(path)
    assert catalog.next_producer_id_block(1) > 2**32
    catalog.close()


def test_the_version_of_a_named_producer_goes_on_and_the_next_one_skips_epochs(path: Path) -> None:
    catalog = SqliteCatalog(path)
    begun = catalog.begin_producer_version("spark", 3, fresh_id=7, now_ms=NOW_MS)
    catalog.close()

    prepare_catalog(path, now_ms=NOW_MS)

    catalog = SqliteCatalog(path)
    again = catalog.begin_producer_version("spark", 3, fresh_id=8, now_ms=NOW_MS)
    following = catalog.begin_producer_version("spark", 4, fresh_id=8, now_ms=NOW_MS)
    after_it = catalog.begin_producer_version("spark", 5, fresh_id=8, now_ms=NOW_MS)
    catalog.close()
    assert (again.producer_id, again.epoch, again.is_resumed) == (7, begun.epoch, True)
    assert following.producer_id == 7
    assert 2000 < following.epoch <= 3000
    assert after_it.epoch == following.epoch + 1


def test_a_named_producer_without_epochs_left_gets_another_id(path: Path) -> None:
    catalog = SqliteCatalog(path)
    catalog.begin_producer_version("spark", 3, fresh_id=7, now_ms=NOW_MS)
    catalog.close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE named_producers SET epoch = 32000")

    prepare_catalog(path, now_ms=NOW_MS)

    catalog = SqliteCatalog(path)
    assert catalog.begin_producer_version("spark", 4, fresh_id=8, now_ms=NOW_MS).producer_id == 8
    catalog.close()


def test_topics_that_are_not_wanted_are_deleted(path: Path) -> None:
    catalog = SqliteCatalog(path)
    for number, name in enumerate(("a", "b", "c")):
        catalog.create_topic(TopicRecord(name=name, topic_id=UUID(int=number), partitions=1, configs={}))
    catalog.close()

    topics = prepare_catalog(path, now_ms=NOW_MS, only={"a", "c", "unknown"})

    assert [topic.name for topic in topics] == ["a", "c"]
    catalog = SqliteCatalog(path)
    assert [topic.name for topic in catalog.topics()] == ["a", "c"]
    catalog.close()


def record_of(transactional_id: str, state: TransactionState, epoch: int = 5) -> TransactionRecord:
    is_open = state is TransactionState.ONGOING
    return TransactionRecord(
        transactional_id=transactional_id,
        producer_id=7,
        epoch=epoch,
        previous_producer_id=3,
        last_epoch=4,
        timeout_ms=60_000,
        state=state.value,
        started_at_ms=NOW_MS if is_open else -1,
        updated_at_ms=NOW_MS,
        partitions=(("orders", 0),) if is_open else (),
        groups=("readers",) if is_open else (),
    )


OUTCOME = OutcomeRecord(
    number=9,
    transactional_id="t",
    producer_id=7,
    producer_epoch=6,
    is_commit=True,
    partitions=(OutcomePartition(topic="orders", topic_id=UUID(int=1), partition=0, end_offset=4),),
)
OFFSET = OffsetRecord(
    group="readers",
    topic="orders",
    partition=0,
    topic_id=UUID(int=1),
    offset=4,
    leader_epoch=0,
    metadata="",
    committed_at_ms=NOW_MS,
    expires_at_ms=None,
)


@pytest.mark.parametrize(
    "state", [TransactionState.ONGOING, TransactionState.COMPLETE_COMMIT, TransactionState.EMPTY]
)
@pytest.mark.parametrize("epoch", [0, 5, 2**15 - 2])
def test_a_transactional_id_gets_another_producer_id(path: Path, state: TransactionState, epoch: int) -> None:
    store = SqliteGroupStore(path)
    store.open()
    store.write([record_of("t", state, epoch), OUTCOME, OFFSET])
    store.close()

    prepare_groups(path)

    stored = SqliteGroupStore(path)
    assert [record.offset for record in stored.open().offsets] == [4]
    (record,) = stored.transactions().transactions
    assert stored.transactions().outcomes == [OUTCOME]
    stored.close()
    transaction = Transaction.restored(record, now=NOW)
    assert transaction.is_idle
    assert transaction.is_exhausted
    # It is another epoch than any producer has, so recovery aborts what is open in the logs.
    assert transaction.producer.epoch > epoch
    plan = transaction.begin(None, timeout_ms=1000, fresh_id=99, now=NOW)
    assert json.loads(json.dumps([plan.record.producer_id, plan.record.epoch])) == [99, 0]  # type: ignore[union-attr]


def test_without_groups_only_outcomes_stay(path: Path) -> None:
    store = SqliteGroupStore(path)
    store.open()
    store.write([record_of("t", TransactionState.ONGOING), OUTCOME, OFFSET])
    store.close()

    prepare_groups(path, with_groups=False)

    store = SqliteGroupStore(path)
    assert store.open().offsets == []
    assert store.transactions().transactions == []
    assert store.transactions().outcomes == [OUTCOME]
    store.close()


def test_a_file_of_a_newer_release_is_refused(path: Path) -> None:
    SqliteCatalog(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 10000")

    with pytest.raises(DamagedStore, match="a newer release wrote it"):
        prepare_catalog(path, now_ms=NOW_MS)


def test_a_damaged_file_is_found(path: Path) -> None:
    store = SqliteGroupStore(path)
    store.open()
    store.close()
    data = bytearray(path.read_bytes())
    data[4096:8192] = b"\xff" * 4096
    path.write_bytes(data)

    with pytest.raises(DamagedStore, match="is damaged"):
        prepare_groups(path)


def test_the_cdc_connector_takes_a_restore_and_no_failover_for_one() -> None:
    assert SKIPPED_EPOCHS + 1 < EPOCHS_OF_A_RESTORE <= EPOCHS_SKIPPED
