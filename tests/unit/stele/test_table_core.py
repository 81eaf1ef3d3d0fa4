"""What a table decides without I/O: loads, changes, expiry, failures."""

from __future__ import annotations

import pytest
from stele import InvalidRequestError, OffsetOutOfRangeError, SteleClientError
from stele.errors import BrokerUnavailableError, UnsupportedOperationError
from stele.operations.fetch import Fetch
from stele.operations.tables import TableFetch, TablePage
from stele.records import FetchedRecords, Record
from stele.tables import core as core_module
from stele.tables.core import TableCore, TableOptions
from stele.wire import messages as m

TOPIC = "users"
Core = TableCore[bytes, bytes]
Row = tuple[int, str, str | None]


def make_core(**options: float | None) -> Core:
    core = Core(
        TOPIC,
        key=bytes,
        value=bytes,
        options=TableOptions(**options),  # pyright: ignore[reportArgumentType]
        fetches_many=True,
    )
    core.assign([0])
    return core


def records(rows: list[Row]) -> list[Record[bytes]]:
    return [
        Record(TOPIC, 0, offset, 1_000, key.encode(), None if value is None else value.encode())
        for offset, key, value in rows
    ]


def load(
    core: Core, *rows: Row, position: int, is_last: bool = True, end_offset: int = 10, now_s: float = 0.0
) -> None:
    operation = core.next_operation((0,), wait_ms=0)
    assert isinstance(operation, TableFetch)
    page = TablePage(
        records=records(list(rows)), next_offset=position, end_offset=end_offset, is_last=is_last
    )
    core.accept_page(operation, page, now_s)


def fetch(core: Core) -> Fetch:
    operation = core.next_operation((0,), wait_ms=0)
    assert isinstance(operation, Fetch)
    return operation


def follow(core: Core, *rows: Row, position: int, log_start: int = 0, now_s: float = 0.0) -> None:
    outcome = FetchedRecords(
        topic=TOPIC,
        partition=0,
        records=records(list(rows)),
        next_offset=position,
        high_watermark=position,
        log_start_offset=log_start,
    )
    core.accept_fetch(fetch(core), [outcome], now_s)


def test_pages_go_on_where_the_page_before_ended_with_the_same_end() -> None:
    core = make_core()
    first = core.next_operation((0,), wait_ms=0)
    assert isinstance(first, TableFetch)
    assert (first.offset, first.end_offset) == (0, m.CURRENT_END)
    load(core, (1, "a", "1"), position=2, is_last=False, end_offset=7)
    assert not core.is_loaded([0])
    second = core.next_operation((0,), wait_ms=0)
    assert isinstance(second, TableFetch)
    assert (second.offset, second.end_offset) == (2, 7)
    load(core, (6, "b", "2"), (8, "a", None), position=9, end_offset=7)
    assert dict(core) == {b"b": b"2"}
    assert fetch(core).partitions[0].offset == 9


def test_a_page_that_comes_twice_is_applied_once() -> None:
    core = make_core()
    operation = core.next_operation((0,), wait_ms=0)
    load(core, (1, "a", "1"), position=2)
    follow(core, (2, "a", None), position=3)
    assert isinstance(operation, TableFetch)
    core.accept_page(
        operation, TablePage(records=records([(1, "a", "1")]), next_offset=2, end_offset=2, is_last=True), 0.0
    )
    assert dict(core) == {}
    assert core.positions == {0: 3}


def test_a_lost_position_loads_the_partition_again_and_removes_what_is_gone() -> None:
    core = make_core()
    load(core, (1, "a", "1"), (2, "b", "2"), (3, "c", "3"), position=4)
    pending = core.subscribe()
    core.accept_fetch(fetch(core), [OffsetOutOfRangeError("gone")], 0.0)
    assert not core.is_at({0: 1})
    assert core[b"a"] == b"1", "the table can be read meanwhile"
    load(core, (2, "b", "2"), position=3, is_last=False)
    load(core, (3, "c", "new"), position=4)
    assert core.is_at({0: 4})
    assert dict(core) == {b"b": b"2", b"c": b"new"}
    changes = [pending.take(), pending.take(), pending.take()]
    assert [(c.key, c.value, c.record is None) for c in changes if c is not None] == [
        (b"c", b"new", False),
        (b"a", None, True),
    ]


def test_a_table_that_may_have_missed_tombstones_loads_the_partition_again() -> None:
    core = make_core()
    core.assign([0], delete_retention_ms=90_000)
    load(core, (1, "a", "1"), (2, "b", "2"), position=3, now_s=1_000.0)
    follow(core, position=3, now_s=1_080.0)
    follow(core, (3, "c", "3"), position=4, now_s=1_170.0)
    assert set(core) == {b"a", b"b", b"c"}
    # Nothing was missed while nothing was written.
    follow(core, position=4, now_s=2_000.0)
    assert core.is_at({0: 4})
    follow(core, (9, "d", "4"), position=10, now_s=2_091.0)
    load(core, (2, "b", "2"), (9, "d", "4"), position=10, now_s=2_092.0)
    assert set(core) == {b"b", b"d"}
    assert core.is_at({0: 10})


def test_an_end_that_the_broker_lost_begins_the_load_again() -> None:
    core = make_core()
    load(core, (1, "a", "1"), (2, "b", "1"), position=3, is_last=False, end_offset=7)
    operation = core.next_operation((0,), wait_ms=0)
    assert core.pause_s_after(operation, OffsetOutOfRangeError("past the end"), 0.0) > 0
    load(core, (1, "a", "1"), position=2)
    assert dict(core) == {b"a": b"1"}


def test_records_before_the_log_start_leave_the_table() -> None:
    core = make_core()
    load(core, (1, "a", "1"), (5, "b", "2"), position=6)
    pending = core.subscribe()
    follow(core, position=6, log_start=5)
    assert dict(core) == {b"b": b"2"}
    change = pending.take()
    assert change is not None
    assert (change.key, change.value, change.record) == (b"a", None, None)
    assert pending.take() is None


def test_changes_are_the_newest_per_key_in_the_order_of_their_last_change() -> None:
    core = make_core()
    load(core, position=0)
    pending = core.subscribe()
    follow(core, (0, "a", "1"), (1, "b", "1"), (2, "a", "2"), (3, "c", None), position=4)
    changes = [pending.take(), pending.take(), pending.take()]
    assert [(c.key, c.value) for c in changes if c is not None] == [(b"b", b"1"), (b"a", b"2")]
    core.unsubscribe(pending)
    follow(core, (4, "a", "3"), position=5)
    assert pending.take() is None


def test_an_iterator_of_changes_that_falls_behind_gets_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_module, "PENDING_CHANGES_MAX", 2)
    core = make_core()
    load(core, position=0)
    pending = core.subscribe()
    follow(core, (0, "a", "1"), (1, "b", "1"), (2, "c", "2"), position=3)
    for _ in range(2):
        with pytest.raises(SteleClientError, match=r"call changes\(\) again"):
            pending.take()


def test_an_outage_is_waited_for_as_long_as_the_options_say() -> None:
    core = make_core(outage_timeout_s=5.0)
    operation = core.next_operation((0,), wait_ms=0)
    error = BrokerUnavailableError("down")
    assert core.pause_s_after(operation, error, 100.0) > 0
    assert core.pause_s_after(operation, error, 104.0) > 0
    with pytest.raises(BrokerUnavailableError):
        core.pause_s_after(operation, error, 105.0)
    # Following has no limit, and other errors are not waited for.
    assert core.pause_s_after(operation, error, None) > 0
    with pytest.raises(InvalidRequestError):
        core.pause_s_after(operation, InvalidRequestError("no"), None)


def test_a_table_that_is_not_loaded_or_has_failed_cannot_be_read() -> None:
    core = make_core()
    with pytest.raises(RuntimeError, match="not loaded"):
        len(core)
    load(core, (0, "a", "1"), position=1)
    assert len(core) == 1
    core.fail(InvalidRequestError("no longer compacted"))
    core.fail(InvalidRequestError("second"))
    for read in (len, list, dict, lambda table: b"a" in table, lambda table: table.get(b"a")):  # pyright: ignore
        with pytest.raises(InvalidRequestError, match="no longer compacted"):
            read(core)  # pyright: ignore


def test_records_without_a_key_are_skipped() -> None:
    core = make_core()
    load(core, position=0)
    keyless = Record(TOPIC, 0, 0, 1_000, None, b"x")
    outcome = FetchedRecords(
        topic=TOPIC, partition=0, records=[keyless], next_offset=1, high_watermark=1, log_start_offset=0
    )
    core.accept_fetch(fetch(core), [outcome], 0.0)
    assert dict(core) == {}
    assert core.positions == {0: 1}


def test_options_out_of_bounds_are_refused() -> None:
    with pytest.raises(ValueError, match="wait_ms"):
        TableOptions(wait_ms=-1)
    with pytest.raises(ValueError, match="max_bytes"):
        TableOptions(max_bytes=0)


def test_a_broker_that_is_older_than_fetches_by_id_is_asked_by_name() -> None:
    core = make_core()
    core.topic_id = "b4f0c1de-7d3c-4c53-9d0e-5a6f2f3d9b51"
    load(core, position=10)
    operation = fetch(core)
    assert operation.topic_id == core.topic_id
    older = UnsupportedOperationError("upgrade the broker")
    assert core.pause_s_after(operation, older, 0.0) == 0
    assert fetch(core).topic_id is None
    with pytest.raises(UnsupportedOperationError):
        core.pause_s_after(operation, older, 0.0)
