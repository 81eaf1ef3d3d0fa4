"""A chunk of a copy meets the stream exactly, by ids of transactions and nothing else."""

from __future__ import annotations

import random

import pytest
from stele.cdc.copying import windows
from stele.cdc.copying.windows import Passed, Snapshot, Window
from stele.cdc.records.events import Event


def read(key: int, value: int = 0) -> Event:
    return Event("r", b"%d" % key, b"%d" % value)


def test_a_snapshot_sees_what_had_committed() -> None:
    snapshot = Snapshot.parse("10:20:12,15")
    assert [xid for xid in range(8, 22) if snapshot.sees(xid)] == [8, 9, 10, 11, 13, 14, 16, 17, 18, 19]
    assert Snapshot.parse("10:10:").sees(9)


@pytest.mark.parametrize("epoch", [0, 1, 7])
def test_ids_of_the_stream_have_32_bits_of_64(epoch: int) -> None:
    base = epoch << 32
    around = Snapshot(base + 5, base + 10, frozenset({base + 7}))
    assert around.sees((base + 6) % 2**32)
    assert not around.sees((base + 7) % 2**32)
    assert not around.sees((base + 10) % 2**32)
    # The one before the first of an epoch is of the epoch before.
    assert around.sees((base - 1) % 2**32) or epoch == 0
    assert not Snapshot(base + 2**32 - 5, base + 2**32 - 1, frozenset()).sees(3)


def test_a_transaction_that_the_stream_may_have_passed_is_awaited() -> None:
    passed = Passed(100)
    assert passed.awaited(Snapshot.parse("90:120:90")) == 90
    assert passed.awaited(Snapshot.parse("110:120:110")) is None
    passed.add(110)
    assert passed.awaited(Snapshot.parse("110:120:110")) == 110
    assert passed.awaited(Snapshot.parse("111:120:")) is None


def test_what_is_known_of_passed_transactions_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "PASSED_MAX", 2)
    passed = Passed(0)
    for xid in (1, 2, 3):
        passed.add(xid)
    # It may have been passed, so that every transaction that runs now is awaited.
    assert passed.awaited(Snapshot.parse("4:10:4")) == 4
    assert passed.awaited(Snapshot.parse("11:12:11")) is None


def test_changed_rows_are_left_out_and_the_others_stay_in_order() -> None:
    window = Window(b"token", Snapshot.parse("1:1:"), [read(3), read(1), read(2)])
    window.passed([b"1", b"9"])
    assert [event.key for event in window.rows()] == [b"3", b"2"]
    window.passed([None])
    assert window.rows() == []


@pytest.mark.parametrize("seed", range(200))
def test_the_rows_of_a_copy_are_what_the_changes_before_them_have_made(seed: int) -> None:
    """A database whose transactions become visible some time after their place in the stream."""
    chance = random.Random(seed)
    keys = range(12)
    # All transactions: their changes of keys, None for a deletion; those in the WAL, in commit order; those visible.
    changes: dict[int, dict[int, int | None]] = {}
    wal: list[int | bytes] = []
    visible: set[int | bytes] = set()
    next_xid = 100
    start = {key: 0 for key in keys if chance.random() < 0.7}
    topic: dict[int, int] = {}

    def begin() -> None:
        nonlocal next_xid
        changes[next_xid] = {
            key: chance.choice((None, next_xid)) for key in chance.sample(keys, chance.randrange(1, 4))
        }
        next_xid += 1

    def table() -> dict[int, int]:
        rows = dict(start)
        for xid in wal:
            if xid in visible and not isinstance(xid, bytes):
                for key, value in changes[xid].items():
                    if value is None:
                        rows.pop(key, None)
                    else:
                        rows[key] = value
        return rows

    done, after, position = False, -1, 0
    passed: Passed | None = None
    window: Window | None = None
    last: int | None = None
    steps = 0
    while not done or position < len(wal):
        steps += 1
        assert steps < 5_000
        match chance.randrange(5):
            case 0 if not done:
                begin()
            case 1:
                # Into the WAL; two that changed the same row commit in the order in which they are visible.
                running = [xid for xid in changes if xid not in wal]
                held = {key for xid in changes if xid in wal and xid not in visible for key in changes[xid]}
                free = [xid for xid in running if not held.intersection(changes[xid])]
                if free:
                    wal.append(chance.choice(free))
            case 2:
                hidden = [xid for xid in wal if isinstance(xid, int) and xid not in visible]
                if hidden:
                    visible.add(chance.choice(hidden))
            case 3 if window is None and not done:
                hidden_ids = frozenset(xid for xid in changes if xid not in visible)
                snapshot = Snapshot(min(hidden_ids, default=next_xid), next_xid, hidden_ids)
                passed = passed or Passed(next_xid)
                if passed.awaited(snapshot) is None:
                    rows = [(key, value) for key, value in sorted(table().items()) if key > after][:3]
                    window = Window(b"mark", snapshot, [read(key, value) for key, value in rows])
                    last = rows[-1][0] if len(rows) == 3 else None
                    wal.append(b"mark")
            case _ if position < len(wal):
                message = wal[position]
                position += 1
                if isinstance(message, bytes):
                    assert window is not None
                    for event in window.rows():
                        assert event.key is not None
                        assert event.value is not None
                        key, value = int(event.key), int(event.value)
                        assert topic.setdefault(key, value) == value
                    window, done, after = None, last is None, last if last is not None else after
                    continue
                if passed is not None:
                    passed.add(message)
                if window is not None and not window.snapshot.sees(message):
                    window.passed(b"%d" % key for key in changes[message])
                for key, value in changes[message].items():
                    if value is None:
                        topic.pop(key, None)
                    else:
                        topic[key] = value
            case _:
                pass

    visible.update(xid for xid in wal if isinstance(xid, int))
    assert topic == table()
