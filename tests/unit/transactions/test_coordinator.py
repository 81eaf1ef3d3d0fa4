"""The coordinator over a real engine and a real store, on simulated time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest
from stele.wire.control_record import EndTransactionMarker, MarkerType

from app.broker.producing.transaction_gate import MarkerOrder
from app.errors import (
    ConcurrentTransactions,
    GroupStoreFailed,
    InvalidRequest,
    InvalidTransactionState,
    InvalidTransactionTimeout,
    OperationNotAttempted,
    ProducerFenced,
    StorageFull,
    TooManyTransactionalIds,
    TransactionalIdNotFound,
    TransactionFenced,
    UnknownPartition,
    UnknownProducerMapping,
    UnknownTopic,
)
from app.groups.base.messages import CommitRequest
from app.storage.engine import AppendTicket
from app.storage.topic_partition import TopicPartition
from app.transactions import endings
from app.transactions.messages import NOT_STARTED, ProducerIdentity
from app.transactions.states import TransactionState
from tests.support.simulated_files import Fault
from tests.support.simulated_time import simulated
from tests.support.transactions import TIMEOUT_MS, TransactionBench
from tests.support.turns import Turns

DAY_S = 86_400


async def ended(bench: TransactionBench, transactional_id: str = "t") -> None:
    """Wait until no transaction is ending."""
    while (await bench.transactions.describe(transactional_id)).state.is_preparing:  # noqa: ASYNC110 - simulated time
        await asyncio.sleep(0.01)


async def begin_again(bench: TransactionBench) -> ProducerIdentity:
    """Begin while a transaction is open: the first call aborts it."""
    with pytest.raises(ConcurrentTransactions):
        await bench.begin()
    await ended(bench)
    return await bench.begin()


@pytest.mark.parametrize("adds", [True, False])
@simulated
async def test_a_commit_shows_all_partitions_and_the_offsets_at_once(tmp_path: Path, adds: bool) -> None:
    bench = await TransactionBench(tmp_path).open()
    producer = await bench.begin()
    if not adds:
        await bench.add(producer, 0, 2)
    bench.produce(producer, 0, b"a", b"b", adds=adds)
    bench.produce(producer, 2, b"c", adds=adds)
    await bench.commit_offset(producer, 17, adds=adds)
    assert await bench.committed_values() == set()
    assert bench.committed_offset() == -1
    assert bench.stable_offsets() == [(0, 2), (0, 0), (0, 1)]
    following = await bench.end(producer, bumps_epoch=adds)
    assert following == (producer.producer_id, producer.epoch + adds)
    assert bench.stable_offsets() == [(3, 3), (0, 0), (2, 2)]
    assert await bench.committed_values() == {b"a", b"b", b"c"}
    assert bench.committed_offset() == 17
    # A retry, also after a restart.
    assert await bench.end(producer, bumps_epoch=adds) == following
    await bench.close()
    await bench.open()
    assert await bench.end(producer, bumps_epoch=adds) == following
    await bench.close()


@pytest.mark.parametrize("bumps_epoch", [True, False])
@simulated
async def test_an_abort_shows_nothing(tmp_path: Path, bumps_epoch: bool) -> None:
    bench = await TransactionBench(tmp_path).open()
    producer = await bench.begin()
    bench.produce(producer, 0, b"a")
    await bench.commit_offset(producer, 17)
    following = await bench.end(producer, commit=False, bumps_epoch=bumps_epoch)
    assert (await bench.committed_values(), bench.committed_offset()) == (set(), -1)
    assert bench.stable_offsets()[0] == (2, 2)
    sequence = 0 if bumps_epoch else 1
    bench.produce(following, 0, b"b", sequence=sequence)
    await bench.end(following, bumps_epoch=bumps_epoch)
    assert await bench.committed_values() == {b"b"}
    await bench.close()


@simulated
async def test_one_wrong_partition_adds_none(tmp_path: Path) -> None:
    bench = await TransactionBench(tmp_path).open()
    await bench.broker.create_topic("volatile", partitions=1, configs={"stele.storage": "memory"})
    producer = await bench.begin()
    right = TopicPartition("orders", 0)
    for wrong, error in (
        (TopicPartition("nowhere", 0), UnknownTopic),
        (TopicPartition("orders", 3), UnknownPartition),
        (TopicPartition("volatile", 0), InvalidRequest),
    ):
        results = await bench.transactions.add_partitions("t", producer, [right, wrong])
        assert isinstance(results[right], OperationNotAttempted)
        assert isinstance(results[wrong], error)
        assert (await bench.transactions.describe("t")).state is TransactionState.EMPTY
    await bench.close()


@simulated
async def test_a_new_producer_fences_the_old_one_and_aborts_its_transaction(tmp_path: Path) -> None:
    bench = await TransactionBench(tmp_path).open()
    old = await bench.begin()
    bench.produce(old, 0, b"old")
    new = await begin_again(bench)
    assert new == (old.producer_id, old.epoch + 2)
    with pytest.raises(ProducerFenced):
        bench.produce(old, 0, b"late", sequence=1)
    with pytest.raises(TransactionFenced):
        await bench.add(old, 0)
    with pytest.raises(TransactionFenced):
        await bench.commit_offset(old, 1)
    for bumps_epoch in (True, False):
        with pytest.raises(TransactionFenced):
            await bench.end(old, bumps_epoch=bumps_epoch)
    bench.produce(new, 0, b"new")
    await bench.end(new)
    assert await bench.committed_values() == {b"new"}
    await bench.close()


@simulated
async def test_requests_of_unknown_ids_and_producers_are_refused(tmp_path: Path) -> None:
    bench = await TransactionBench(tmp_path, transactional_ids_max=1).open()
    for transactional_id in ("", "x" * 1025):
        with pytest.raises(InvalidRequest):
            await bench.begin(transactional_id)
    for timeout_ms in (0, -1, 900_001):
        with pytest.raises(InvalidTransactionTimeout):
            await bench.transactions.init_producer_id("t", timeout_ms=timeout_ms)
    stranger = ProducerIdentity(99, 0)
    with pytest.raises(UnknownProducerMapping):
        await bench.add(stranger, 0)
    with pytest.raises(UnknownProducerMapping):
        bench.produce(stranger, 0, b"a")
    with pytest.raises(TransactionalIdNotFound):
        await bench.transactions.describe("t")
    producer = await bench.begin()
    with pytest.raises(UnknownProducerMapping):
        await bench.end(stranger)
    with pytest.raises(InvalidTransactionState):
        await bench.transactions.commit_offsets(
            "t", producer, CommitRequest(group="g", offsets=[]), adds_group=False
        )
    with pytest.raises(TooManyTransactionalIds):
        await bench.begin("another")
    await bench.close()


@simulated
async def test_a_transaction_that_takes_too_long_is_aborted_and_fenced(tmp_path: Path) -> None:
    bench = await TransactionBench(tmp_path).open()
    producer = await bench.begin()
    bench.produce(producer, 0, b"a")
    await bench.commit_offset(producer, 5)
    await asyncio.sleep(TIMEOUT_MS / 1000 - 1)
    assert (await bench.transactions.describe("t")).state is TransactionState.ONGOING
    assert bench.transactions.counts.oldest_ms >= TIMEOUT_MS - 1001
    await asyncio.sleep(12)
    assert (await bench.transactions.describe("t")).state is TransactionState.COMPLETE_ABORT
    assert bench.stable_offsets()[0] == (2, 2)
    with pytest.raises(ProducerFenced):
        bench.produce(producer, 0, b"late", sequence=1)
    with pytest.raises(TransactionFenced):
        await bench.end(producer, bumps_epoch=False)
    with pytest.raises(InvalidTransactionState):
        await bench.end(producer)
    following = await bench.end(producer, commit=False)
    assert following == (producer.producer_id, producer.epoch + 1)
    bench.produce(following, 0, b"b")
    await bench.end(following)
    assert (await bench.committed_values(), bench.committed_offset()) == ({b"b"}, -1)
    counts = bench.transactions.counts
    assert (counts.ids, counts.open, counts.oldest_ms) == (1, 0, 0)
    assert (counts.committed, counts.aborted, counts.timed_out) == (1, 1, 1)
    await bench.close()


@simulated
async def test_unused_ids_expire_and_open_transactions_do_not(tmp_path: Path) -> None:
    bench = await TransactionBench(tmp_path, transactional_id_expiration_ms=3 * DAY_S * 1000).open()
    unused = await bench.begin("unused")
    # The timeout of the transaction must not end it first.
    producer = await bench.begin("t")
    transaction = bench.transactions._table.find("t")  # pyright: ignore[reportPrivateUsage]
    assert transaction is not None
    transaction.timeout_ms = 30 * DAY_S * 1000
    bench.produce(producer, 0, b"a")
    await asyncio.sleep(2.9 * DAY_S)
    assert [listing.transactional_id for listing in (await bench.transactions.list())] == ["t", "unused"]
    await asyncio.sleep(0.2 * DAY_S)
    assert [listing.transactional_id for listing in (await bench.transactions.list())] == ["t"]
    with pytest.raises(UnknownProducerMapping):
        await bench.end(unused, transactional_id="unused")
    await bench.close()
    await bench.open()
    assert [listing.transactional_id for listing in (await bench.transactions.list())] == ["t"]
    again = await bench.begin("unused")
    assert again.producer_id != unused.producer_id
    await bench.close()


@simulated
async def test_a_topic_may_be_deleted_while_a_transaction_is_open(tmp_path: Path) -> None:
    bench = await TransactionBench(tmp_path).open()
    await bench.broker.create_topic("other", partitions=1)
    producer = await bench.begin()
    await bench.add(producer, 0, topic="other")
    bench.produce(producer, 0, b"lost", topic="other")
    bench.produce(producer, 0, b"kept")
    await bench.broker.delete_topic("other")
    assert (await bench.transactions.describe("t")).partitions == [TopicPartition("orders", 0)]
    await bench.end(producer)
    assert await bench.committed_values() == {b"kept"}
    await bench.close()


@simulated
async def test_a_topic_may_be_deleted_while_a_transaction_ends(tmp_path: Path) -> None:
    bench = await TransactionBench(tmp_path).open()
    await bench.broker.create_topic("other", partitions=1)
    producer = await bench.begin()
    bench.produce(producer, 0, b"lost", topic="other")
    bench.produce(producer, 0, b"kept")
    ending = asyncio.ensure_future(bench.end(producer))
    await asyncio.sleep(0)
    await bench.broker.delete_topic("other")
    await bench.broker.create_topic("other", partitions=1)
    await ending
    assert await bench.committed_values() == {b"kept"}
    assert bench.broker.log_state("other", 0).log_end_offset == 0
    await bench.close()


@pytest.mark.parametrize("how", ["commit", "abort", "begin", "timeout"])
@simulated
async def test_a_transaction_ends_although_a_topic_of_it_has_fewer_partitions_since_a_restart(
    tmp_path: Path, how: str
) -> None:
    bench = await TransactionBench(tmp_path).open()
    await bench.broker.create_topic("other", partitions=3)
    producer = await bench.begin()
    await bench.add(producer, 2, topic="other")
    await bench.add(producer, 0)
    bench.produce(producer, 0, b"kept", adds=False)
    # What is stored of the transaction still names the partition.
    await bench.broker.delete_topic("other")
    await bench.broker.create_topic("other", partitions=1)
    await bench.close()
    await bench.open()
    if how == "timeout":
        await asyncio.sleep(2 * TIMEOUT_MS / 1000)
    elif how == "begin":
        await begin_again(bench)
    else:
        await bench.end(producer, commit=how == "commit")
    assert bench.stable_offsets()[0] == (2, 2)
    assert await bench.committed_values() == ({b"kept"} if how == "commit" else set())
    await bench.close()


@simulated
async def test_an_open_transaction_survives_a_restart_and_can_be_committed(tmp_path: Path) -> None:
    bench = await TransactionBench(tmp_path).open()
    implicit, explicit = await bench.begin("implicit"), await bench.begin("explicit")
    bench.produce(implicit, 0, b"a", transactional_id="implicit")
    await bench.commit_offset(implicit, 3, transactional_id="implicit")
    await bench.add(explicit, 1, transactional_id="explicit")
    bench.produce(explicit, 1, b"b", transactional_id="explicit", adds=False)
    await bench.close()
    await bench.open()
    for transactional_id in ("implicit", "explicit"):
        assert (await bench.transactions.describe(transactional_id)).state is TransactionState.ONGOING
    assert await bench.committed_values() == set()
    bench.produce(implicit, 0, b"c", sequence=1, transactional_id="implicit", adds=False)
    await bench.end(implicit, transactional_id="implicit")
    await bench.end(explicit, transactional_id="explicit", bumps_epoch=False)
    assert await bench.committed_values() == {b"a", b"b", b"c"}
    assert bench.committed_offset("implicit") == 3
    await bench.close()


@simulated
async def test_what_nobody_can_end_is_aborted_at_the_start(tmp_path: Path) -> None:
    bench = await TransactionBench(tmp_path).open()
    producer = await bench.begin()
    bench.produce(producer, 0, b"a")
    await bench.commit_offset(producer, 3)
    await bench.close()
    for name in ("groups.sqlite", "groups.sqlite-wal", "groups.sqlite-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    await bench.open()
    assert bench.stable_offsets()[0] == (2, 2)
    assert (await bench.committed_values(), bench.committed_offset()) == (set(), -1)
    await bench.close()


@simulated
async def test_a_store_that_fails_leaves_the_transaction_open(tmp_path: Path) -> None:
    bench = await TransactionBench(tmp_path).open()
    producer = await bench.begin()
    bench.produce(producer, 0, b"a")
    store = bench.groups.table._writer._store  # pyright: ignore[reportPrivateUsage]
    write = store.write

    def fail(changes: object) -> None:
        raise GroupStoreFailed(tmp_path, "a full disk")

    store.write = fail  # type: ignore[method-assign]
    with pytest.raises(GroupStoreFailed):
        await bench.end(producer)
    with pytest.raises(GroupStoreFailed):
        await bench.begin("another")
    store.write = write  # type: ignore[method-assign]
    description = await bench.transactions.describe("t")
    assert (description.state, description.producer_epoch) == (TransactionState.ONGOING, 0)
    assert await bench.committed_values() == set()
    await bench.end(producer)
    assert await bench.committed_values() == {b"a"}
    assert [listing.transactional_id for listing in (await bench.transactions.list())] == ["t"]
    await bench.close()


@simulated
async def test_markers_that_find_no_room_are_appended_later(tmp_path: Path) -> None:
    bench = await TransactionBench(tmp_path).open()
    producer = await bench.begin()
    bench.produce(producer, 0, b"a")
    bench.produce(producer, 1, b"b")
    await bench.broker.flush()
    bench.files.fail(Fault(kinds=("write",), call=2, errno=28, times=2))
    with pytest.raises(StorageFull):
        await bench.end(producer)
    description = await bench.transactions.describe("t")
    assert description.state is TransactionState.PREPARE_COMMIT
    assert description.partitions == [TopicPartition("orders", 1)]
    with pytest.raises(ConcurrentTransactions):
        await bench.end(producer)
    await asyncio.sleep(2)
    assert await bench.end(producer) == (producer.producer_id, 1)
    assert await bench.committed_values() == {b"a", b"b"}
    await bench.close()


@simulated
async def test_describe_and_list(tmp_path: Path) -> None:
    bench = await TransactionBench(tmp_path).open()
    first, second = await bench.begin("a"), await bench.begin("b")
    bench.produce(second, 1, b"x", transactional_id="b")
    idle, busy = (await bench.transactions.describe("a")), (await bench.transactions.describe("b"))
    assert (idle.state, idle.started_at_ms, list(idle.partitions)) == (
        TransactionState.EMPTY,
        NOT_STARTED,
        [],
    )
    assert (busy.producer_id, busy.producer_epoch, busy.timeout_ms) == (*second, TIMEOUT_MS)
    assert (busy.started_at_ms, list(busy.partitions)) == (
        bench.clock.now_ms(),
        [TopicPartition("orders", 1)],
    )
    await asyncio.sleep(5)

    async def ids(**filters: object) -> str:
        return "".join(one.transactional_id for one in (await bench.transactions.list(**filters)))  # type: ignore[arg-type]

    assert await ids() == "ab"
    assert (
        await ids(states=["Ongoing"]),
        await ids(states=["Empty", "Nonsense"]),
        await ids(states=["Nonsense"]),
    ) == (
        "b",
        "a",
        "",
    )
    assert (await ids(producer_ids=[first.producer_id]), await ids(producer_ids=[77])) == ("a", "")
    assert (
        await ids(min_duration_ms=4999),
        await ids(min_duration_ms=5000),
        await ids(min_duration_ms=0),
    ) == ("b", "", "b")
    await bench.close()


@simulated
async def test_an_operator_aborts_a_transaction(tmp_path: Path) -> None:
    bench = await TransactionBench(tmp_path).open()
    with pytest.raises(TransactionalIdNotFound):
        await bench.transactions.abort("t")
    producer = await bench.begin()
    await bench.transactions.abort("t")
    bench.produce(producer, 0, b"a")
    await bench.transactions.abort("t")
    assert bench.stable_offsets()[0] == (2, 2)
    with pytest.raises(ProducerFenced):
        bench.produce(producer, 0, b"late", sequence=1)
    await bench.close()


@simulated
async def test_an_operator_aborts_a_partition_and_with_it_the_transaction(tmp_path: Path) -> None:
    bench = await TransactionBench(tmp_path).open()
    producer = await bench.begin()
    bench.produce(producer, 0, b"a")
    bench.produce(producer, 1, b"b")
    name = TopicPartition("orders", 0)
    await bench.transactions.abort_partition(
        name, producer_id=producer.producer_id, epoch=producer.epoch, coordinator_epoch=0
    )
    assert bench.stable_offsets()[:2] == [(2, 2), (2, 2)]
    assert await bench.committed_values() == set()
    with pytest.raises(InvalidTransactionState):
        await bench.transactions.abort_partition(
            name, producer_id=producer.producer_id, epoch=producer.epoch, coordinator_epoch=0
        )
    await bench.close()


def lose_transaction(bench: TransactionBench) -> None:
    """Make the open transaction a hanging one: its coordinator no longer knows it."""
    transaction = bench.transactions._table.find("t")  # pyright: ignore[reportPrivateUsage]
    assert transaction is not None
    bench.transactions._table.remove(transaction)  # pyright: ignore[reportPrivateUsage]


@simulated
async def test_a_hanging_transaction_is_aborted_in_its_partition(tmp_path: Path) -> None:
    bench = await TransactionBench(tmp_path).open()
    producer = await bench.begin()
    bench.produce(producer, 0, b"a")
    lose_transaction(bench)
    name = TopicPartition("orders", 0)
    with pytest.raises(ProducerFenced):
        await bench.transactions.abort_partition(
            name, producer_id=producer.producer_id, epoch=-1, coordinator_epoch=0
        )
    await bench.transactions.abort_partition(
        name, producer_id=producer.producer_id, epoch=producer.epoch, coordinator_epoch=0
    )
    assert bench.stable_offsets()[0] == (2, 2)
    await bench.close()


@simulated
async def test_a_made_up_coordinator_epoch_fences_no_later_transaction_of_the_producer(
    tmp_path: Path,
) -> None:
    bench = await TransactionBench(tmp_path).open()
    producer = await bench.begin()
    bench.produce(producer, 0, b"a")
    lose_transaction(bench)
    await bench.transactions.abort_partition(
        TopicPartition("orders", 0),
        producer_id=producer.producer_id,
        epoch=producer.epoch,
        coordinator_epoch=2**31 - 1,
    )
    # Unlike a made-up epoch, that of this coordinator fences nobody.
    bench.broker.append_markers(
        [
            MarkerOrder(
                topic_partition=TopicPartition("orders", 0),
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch + 1,
                marker=EndTransactionMarker(type=MarkerType.ABORT, coordinator_epoch=bench.groups.epoch),
            )
        ]
    )
    await bench.close()


@simulated
async def test_a_caller_that_goes_away_does_not_stop_the_end(tmp_path: Path) -> None:
    bench = await TransactionBench(tmp_path).open()
    producer = await bench.begin()
    bench.produce(producer, 0, b"a")
    request = asyncio.ensure_future(bench.end(producer))
    await asyncio.sleep(0)
    request.cancel()
    await asyncio.gather(request, return_exceptions=True)
    await ended(bench)
    assert await bench.committed_values() == {b"a"}
    assert await bench.end(producer) == (producer.producer_id, 1)
    await bench.close()


@simulated
async def test_outcomes_are_deleted_when_their_markers_are_synced(tmp_path: Path) -> None:
    bench = await TransactionBench(tmp_path).open()
    producer = await bench.begin()
    for number in range(3):
        bench.produce(producer, 0, b"%d" % number)
        producer = await bench.end(producer)
    assert len((await bench.groups.table.transactions()).outcomes) == 3
    await asyncio.sleep(2)
    assert list((await bench.groups.table.transactions()).outcomes) == []
    state = bench.broker.log_state("orders", 0)
    assert state.recovery_point == state.log_end_offset
    await bench.close()


# ── many at a time ──


@simulated
async def test_the_end_of_a_transaction_looks_at_no_other_in_its_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = await TransactionBench(tmp_path).open()
    producers = {f"t{number}": await bench.begin(f"t{number}") for number in range(20)}
    for transactional_id, producer in producers.items():
        bench.produce(producer, 0, transactional_id.encode(), transactional_id=transactional_id)
    assert len(bench.broker.open_transactions(TopicPartition("orders", 0))) == 20
    with monkeypatch.context() as patched:
        # It would list all of them.
        patched.delattr(type(bench.broker), "open_transactions")
        for number in (7, 19, 0):
            await bench.end(producers[f"t{number}"], transactional_id=f"t{number}", commit=number != 19)
    await asyncio.sleep(2)
    assert len(bench.broker.open_transactions(TopicPartition("orders", 0))) == 17
    content = await bench.content(0)
    assert (sorted(content.committed), content.aborted) == ([b"t0", b"t7"], [b"t19"])
    await bench.close()


@simulated
async def test_the_end_of_a_transaction_with_many_partitions_takes_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endings, "MARKERS_PER_TURN", 2)
    bench = await TransactionBench(tmp_path).open()
    producer = await bench.begin()
    for partition in range(3):
        bench.produce(producer, partition, b"%d" % partition)
    appended: list[int] = []
    append = bench.broker.append_markers

    def counted(orders: Sequence[MarkerOrder], *, sync: bool = False) -> list[AppendTicket]:
        appended.append(len(orders))
        return append(orders, sync=sync)

    monkeypatch.setattr(bench.broker, "append_markers", counted)
    await bench.end(producer)
    assert appended == [2, 1]
    assert await bench.committed_values() == {b"0", b"1", b"2"}
    await bench.close()


@simulated
async def test_an_outcome_stays_until_the_last_marker_of_many_is_appended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endings, "MARKERS_PER_TURN", 1)
    bench = await TransactionBench(tmp_path).open()
    producer = await bench.begin()
    bench.produce(producer, 0, b"a")
    bench.produce(producer, 1, b"b")
    await bench.broker.flush()
    # The second marker finds no room, and for a long time.
    bench.files.fail(Fault(kinds=("write",), call=2, errno=28, times=20))
    with pytest.raises(StorageFull):
        await bench.end(producer)
    await asyncio.sleep(5)
    assert (await bench.transactions.describe("t")).state is TransactionState.PREPARE_COMMIT
    assert (await bench.groups.table.transactions()).outcomes, "a crash would lose the second marker"
    await asyncio.sleep(60)
    assert await bench.end(producer) == (producer.producer_id, 1)
    await asyncio.sleep(5)
    assert await bench.committed_values() == {b"a", b"b"}
    assert not (await bench.groups.table.transactions()).outcomes
    await bench.close()


@pytest.mark.parametrize("work", ["overdue", "unused", "list", "open"])
@simulated
async def test_work_on_all_transactions_pauses(tmp_path: Path, work: str) -> None:
    bench = await TransactionBench(tmp_path).open()
    for number in range(300):
        producer = await bench.begin(f"t{number}")
        if work != "unused":
            bench.produce(producer, 0, b"x", transactional_id=f"t{number}")
    timeouts = bench.transactions._timeouts  # pyright: ignore[reportPrivateUsage]
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "overdue": timeouts.abort_overdue,
        "unused": timeouts.expire_unused,
        "list": bench.transactions.list,
        "open": bench.transactions.open_in,
    }
    turns = Turns()
    await asyncio.sleep(0)
    await calls[work]()
    assert turns.count >= 300 // 50
    turns.close()
    await bench.close()


@simulated
async def test_the_oldest_open_transaction_is_known_also_after_a_restart(tmp_path: Path) -> None:
    bench = await TransactionBench(tmp_path).open()
    # In another order than that of their ids.
    for transactional_id in ("z", "a", "m"):
        producer = await bench.begin(transactional_id)
        await bench.add(producer, 0, transactional_id=transactional_id)
        await asyncio.sleep(1)
    assert bench.transactions.counts.oldest_ms == 3000
    await bench.close()
    await bench.open()
    assert bench.transactions.counts.oldest_ms == 3000
    await bench.transactions.abort("z")
    assert bench.transactions.counts.oldest_ms == 2000
    await bench.close()
