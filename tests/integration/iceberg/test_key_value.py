"""Tables of records as they are: what they have, and how a table goes on."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.table import Table
from stele.client import Client
from stele.iceberg.errors import CommitConflict, IcebergError
from stele.records import NewRecord
from stele.testing import BrokerProcess

from tests.support.iceberg import Writing, writing

_parquet: Any = pq

_equal_to: Any = EqualTo
TABLE = {"stele.iceberg.mode": "key_value"}


def _offsets(tables: Writing, name: str) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for row in tables.rows(name):
        found.setdefault(row["partition"], []).append(row["offset"])
    return found


def _files(table: Table) -> list[dict[str, Any]]:
    inspected: Any = table.inspect
    return inspected.files().to_pylist()


def _summary(tables: Writing, name: str) -> Any:
    snapshot = tables.table(name).current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    return snapshot.summary


def test_a_record_is_a_row_with_all_that_it_has(client: Client, tables: Writing) -> None:
    client.create_topic("plain", partitions=1, configs=TABLE)
    times = [0, 1_700_000_000_123, -1, -62_135_596_800_000, -5_000_000]
    client.produce_many(
        "plain",
        [
            NewRecord(b"v", key=b"k", headers=[("a", b"1"), ("a", None)], timestamp=times[1]),
            NewRecord(None, key=b"k", timestamp=times[0]),
            NewRecord(b"", timestamp=times[2]),
            NewRecord(b"first", timestamp=times[3]),
            NewRecord(b"before 1970", timestamp=times[4]),
        ],
    )

    tables.write("plain")

    rows = tables.rows("plain")
    assert [(row["key"], row["value"]) for row in rows] == [
        (b"k", b"v"),
        (b"k", None),
        (None, b""),
        (None, b"first"),
        (None, b"before 1970"),
    ]
    assert [row["timestamp"] for row in rows] == [
        datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC),
        datetime(1970, 1, 1, tzinfo=UTC),
        None,
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(1969, 12, 31, 22, 36, 40, tzinfo=UTC),
    ]
    assert rows[0]["headers"] == [{"key": "a", "value": b"1"}, {"key": "a", "value": None}]
    assert [(row["partition"], row["offset"], row["timestamp_type"]) for row in rows] == [
        (0, offset, 0) for offset in range(5)
    ]
    assert {str(file["partition"]["timestamp_day"]) for file in _files(tables.table("plain"))} == {
        "2023-11-14",
        "1970-01-01",
        "1969-12-31",
        "0001-01-01",
        "None",
    }
    scan: Any = tables.table("plain").scan(row_filter="timestamp < '1970-01-01T00:00:00+00:00'")
    assert scan.to_arrow()["value"].to_pylist() == [b"first", b"before 1970"]


def test_snapshots_say_which_offsets_they_have_and_another_process_goes_on(
    broker: BrokerProcess, client: Client, tables: Writing, tmp_path: Path
) -> None:
    client.create_topic("goes-on", partitions=3, configs=TABLE)
    client.produce("goes-on", b"0", partition=0)
    client.produce("goes-on", b"0", partition=2)
    tables.write("goes-on")
    summary = _summary(tables, "goes-on")
    assert json.loads(summary["stele.offsets"]) == {"0": 1, "1": 0, "2": 1}
    assert summary["stele.topic-id"] == tables.writer("goes-on").spec.topic_id

    client.produce("goes-on", b"1", partition=0)
    with writing(broker, tmp_path) as other:
        other.write("goes-on")
        client.produce("goes-on", b"2", partition=0)
        other.write("goes-on")
    # It finds what the other one has committed.
    client.produce("goes-on", b"3", partition=0)
    tables.write("goes-on")

    assert _offsets(tables, "goes-on") == {0: [0, 1, 2, 3], 2: [0]}


def test_an_idle_table_gets_no_snapshots(client: Client, tables: Writing) -> None:
    client.create_topic("idle", partitions=1, configs=TABLE)
    client.produce("idle", b"0")
    tables.write("idle")
    before = len(tables.table("idle").snapshots())
    assert not tables.turn("idle")
    assert len(tables.table("idle").snapshots()) == before
    assert tables.writer("idle").status.state == "level"


def test_only_one_of_two_commits_of_the_same_records_counts(
    broker: BrokerProcess, client: Client, tables: Writing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.create_topic("raced", partitions=1, configs=TABLE)
    client.produce_many("raced", [b"%d" % n for n in range(100)])
    with writing(broker, tmp_path) as other:
        writer = tables.writer("raced")
        read = writer._commit

        def commit_after_the_other(turn: Any) -> None:
            other.write("raced")
            read(turn)

        monkeypatch.setattr(writer, "_commit", commit_after_the_other)
        with pytest.raises(CommitConflict):
            tables.turn("raced")
        monkeypatch.undo()
        tables.write("raced")
    assert _offsets(tables, "raced") == {0: list(range(100))}
    # What the loser had written is gone.
    directory = Path(tables.table("raced").location().removeprefix("file://"))
    assert len(list(directory.glob("data/**/*.parquet"))) == 1


def test_a_commit_whose_answer_is_lost_counts_once(
    client: Client, tables: Writing, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.create_topic("unanswered", partitions=1, configs=TABLE)
    client.produce_many("unanswered", [b"%d" % n for n in range(10)])
    tables.turn("unanswered")
    client.produce_many("unanswered", [b"%d" % n for n in range(10)])
    commit = tables.catalog.commit_table

    def lose_answer(*arguments: Any) -> Any:
        commit(*arguments)
        raise OSError("the connection was lost")

    monkeypatch.setattr(tables.catalog, "commit_table", lose_answer)
    with pytest.raises(OSError, match="the connection was lost"):
        tables.turn("unanswered")
    monkeypatch.undo()
    client.produce("unanswered", b"last")
    tables.write("unanswered")
    assert _offsets(tables, "unanswered") == {0: list(range(21))}


def test_a_table_that_was_off_while_records_were_deleted_goes_on(
    broker: BrokerProcess, client: Client, tables: Writing
) -> None:
    client.create_topic("paused", partitions=1, configs=TABLE)
    client.produce_many("paused", [b"%d" % n for n in range(5)])
    tables.write("paused")
    client.alter_topic("paused", configs={"stele.iceberg.mode": "off"})
    client.produce_many("paused", [b"%d" % n for n in range(5)])
    url = f"{broker.http_url}/v1/topics/paused/partitions/0/records"
    httpx.delete(url, params={"before": 10}).raise_for_status()
    client.alter_topic("paused", configs=TABLE)
    tables.write("paused")
    assert tables.writer("paused").status.lost == 5
    client.produce("paused", b"on again")
    tables.write("paused")
    assert _offsets(tables, "paused") == {0: [*range(5), 10]}


def test_bounds_of_columns_hold_for_bytes_that_no_text_has(client: Client, tables: Writing) -> None:
    client.create_topic("bytes", partitions=1, configs=TABLE)
    keys = [
        b"\xff" * 40,
        b"\xff" * 16 + b"a",
        b"a" * 15 + b"\xff\xff",
        b"",
        b"\0" * 20,
        b"\xfe" + b"\xff" * 30,
    ]
    client.produce_many("bytes", [NewRecord(key, key=key) for key in keys])
    tables.write("bytes")
    table = tables.table("bytes")
    for key in keys:
        for column in ("key", "value"):
            scan: Any = table.scan(row_filter=_equal_to(column, key))
            assert scan.to_arrow()["key"].to_pylist() == [key]


def test_only_what_is_committed_is_in_the_table(
    broker: BrokerProcess, client: Client, tables: Writing
) -> None:
    client.create_topic("committed", partitions=1, configs=TABLE)
    with Client(broker.http_url) as http:
        with http.transaction("iceberg-1") as transaction:
            transaction.produce("committed", b"a")
            transaction.produce("committed", b"b")
        with suppress(ZeroDivisionError), http.transaction("iceberg-1") as transaction:
            transaction.produce("committed", b"aborted")
            raise ZeroDivisionError
    client.produce("committed", b"c")
    tables.write("committed")
    assert [row["value"] for row in tables.rows("committed")] == [b"a", b"b", b"c"]
    assert tables.writer("committed").status.lag == 0


def test_a_deleted_topic_keeps_its_table_and_another_of_its_name_gets_one(
    client: Client, tables: Writing
) -> None:
    client.create_topic("again", partitions=1, configs=TABLE)
    client.produce("again", b"old")
    tables.write("again")
    first_id = tables.writer("again").spec.topic_id
    client.delete_topic("again")
    client.create_topic("again", partitions=1, configs=TABLE)
    client.produce_many("again", [b"new", b"newer"])
    tables.write("again")
    assert [row["value"] for row in tables.rows("again")] == [b"new", b"newer"]
    assert [row["value"] for row in tables.rows(f"again_replaced_{first_id[:8]}")] == [b"old"]


def test_deleted_records_are_a_gap_that_is_reported(
    broker: BrokerProcess, client: Client, tables: Writing, caplog: pytest.LogCaptureFixture
) -> None:
    client.create_topic("gap", partitions=1, configs=TABLE)
    client.produce_many("gap", [b"%d" % n for n in range(10)])
    tables.write("gap")
    client.produce_many("gap", [b"%d" % n for n in range(10, 30)])
    url = f"{broker.http_url}/v1/topics/gap/partitions/0/records"
    httpx.delete(url, params={"before": 25}).raise_for_status()
    tables.write("gap")
    assert _offsets(tables, "gap") == {0: [*range(10), *range(25, 30)]}
    assert tables.writer("gap").status.lost == 15
    assert "lacks offsets 10 to 24 of partition 0" in caplog.text


def test_a_log_that_is_shorter_than_its_table_stops_it(client: Client, tables: Writing) -> None:
    client.create_topic("shorter", partitions=1, configs=TABLE)
    client.produce("shorter", b"0")
    tables.write("shorter")
    table = tables.table("shorter")
    tables._tables.commit(
        table,
        [],
        parent_id=table.current_snapshot().snapshot_id,  # type: ignore[union-attr]
        positions={0: 5},
        topic_id=tables.writer("shorter").spec.topic_id,
    )
    client.produce("shorter", b"1")
    with pytest.raises(IcebergError, match="ends at offset 2, and table shorter has its records up to 5"):
        tables.turn("shorter")


def test_a_table_of_another_kind_is_refused(client: Client, tables: Writing) -> None:
    client.create_topic("kinds", partitions=1, configs=TABLE)
    tables.write("kinds")
    client.alter_topic("kinds", configs={"stele.iceberg.mode": "value_schema"})
    with pytest.raises(IcebergError, match="has rows of the kind key_value, not value_schema"):
        tables.turn("kinds")


def test_times_that_no_engine_has_go_to_the_table_of_errors(client: Client, tables: Writing) -> None:
    client.create_topic("times", partitions=1, configs=TABLE)
    client.produce_many(
        "times",
        [
            NewRecord(b"a", timestamp=-62_135_596_800_001),
            NewRecord(b"b", timestamp=0),
            NewRecord(b"c", key=b"k", headers=[("h", b"x")], timestamp=-(2**60)),
        ],
    )
    tables.write("times")
    assert [row["value"] for row in tables.rows("times")] == [b"b"]
    errors = tables.rows("times_errors")
    assert [(row["offset"], row["key"], row["value"], row["timestamp"]) for row in errors] == [
        (0, None, b"a", None),
        (2, b"k", b"c", None),
    ]
    assert errors[0]["reason"] == "its timestamp, -62135596800001 ms, is not in the years 1 to 9999"
    assert errors[1]["headers"] == [{"key": "h", "value": b"x"}]
    assert tables.writer("times").status.error_rows == 2


def test_the_table_of_errors_of_a_topic_is_no_table_of_another(client: Client, tables: Writing) -> None:
    client.create_topic("taken", partitions=1, configs=TABLE)
    client.produce("taken", b"a", timestamp=-(2**60))
    tables.write("taken")
    client.create_topic("taken_errors", partitions=1, configs=TABLE)
    with pytest.raises(IcebergError, match="table taken_errors has rows of the kind errors"):
        tables.turn("taken_errors")


@pytest.mark.parametrize("is_error_written", [False, True])
def test_a_turn_that_ends_between_the_two_commits_writes_nothing_twice(
    broker: BrokerProcess,
    client: Client,
    tables: Writing,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_error_written: bool,
) -> None:
    name = f"two-commits-{is_error_written}".lower()
    client.create_topic(name, partitions=2, configs=TABLE)
    for partition in range(2):
        for number in range(6):
            time_ms = -(2**60) if number % 2 else 0
            client.produce(name, b"%d" % number, partition=partition, timestamp=time_ms)
    commit = tables._tables.commit
    calls: list[str] = []

    def die(table: Any, *arguments: Any, **given: Any) -> Any:
        calls.append(table.name()[-1])
        if len(calls) == (2 if is_error_written else 1):
            raise ZeroDivisionError
        return commit(table, *arguments, **given)

    monkeypatch.setattr(tables._tables, "commit", die)
    with pytest.raises(ZeroDivisionError):
        tables.turn(name)
    assert calls[0] == f"{name}_errors"
    # The next turn reads one partition only, and finds another error there.
    client.produce(name, b"6", partition=0, timestamp=-(2**60))
    monkeypatch.setattr("stele.iceberg.topic._TURN_BYTES", 1)
    with writing(broker, tmp_path) as later:
        assert later.turn(name)
        later.write(name)
        assert _offsets(later, name) == {0: [0, 2, 4], 1: [0, 2, 4]}
        assert _offsets(later, f"{name}_errors") == {0: [1, 3, 5, 6], 1: [1, 3, 5]}


def test_a_turn_is_bounded_and_files_have_the_target_size(
    client: Client, tables: Writing, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stele.iceberg import files, topic

    monkeypatch.setattr(topic, "_TURN_BYTES", 500_000)
    monkeypatch.setattr(files, "_ROW_GROUP_BYTES", 30_000)
    client.create_topic("bounded", partitions=2, configs=TABLE)
    for partition in range(2):
        client.produce_many(
            "bounded", [NewRecord(b"%d" % number * 10, partition=partition) for number in range(15_000)]
        )
    turns = 1
    while tables.turn("bounded"):
        turns += 1
    assert turns > 2
    assert _offsets(tables, "bounded") == {0: list(range(15_000)), 1: list(range(15_000))}
    table = tables.table("bounded")
    assert len(table.snapshots()) == turns
    sizes = [
        _parquet.ParquetFile(file["file_path"].removeprefix("file://")).metadata.num_row_groups
        for file in _files(table)
    ]
    assert max(sizes) > 1


def test_partitions_that_a_topic_gets_later_are_in_its_table(client: Client, tables: Writing) -> None:
    client.create_topic("grown", partitions=1, configs=TABLE)
    client.produce("grown", b"0", partition=0)
    tables.write("grown")
    client.alter_topic("grown", partitions=3)
    client.produce("grown", b"1", partition=2)
    tables.write("grown")
    assert _offsets(tables, "grown") == {0: [0], 2: [0]}
    assert json.loads(_summary(tables, "grown")["stele.offsets"]) == {"0": 1, "1": 0, "2": 1}
