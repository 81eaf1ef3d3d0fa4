"""Upkeep of Iceberg tables, on tables that pyiceberg makes and reads."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyiceberg.manifest import ManifestEntry
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.types import StringType
from stele.iceberg.tables import OFFSETS, TOPIC_ID
from stele.iceberg.upkeep import (
    Upkeep,
    UpkeepOptions,
    UpkeepReport,
    compact,
    expire_snapshots,
    expired_snapshots,
    grouped,
    unnamed_files,
)

from tests.support.documents import ROOT
from tests.support.iceberg_tables import (
    DAY,
    IDS,
    HookedCatalog,
    append,
    assert_whole,
    catalog_in,
    commit,
    files_of,
    make_table,
    offsets_of,
    rows_of,
    scanned,
)
from tests.support.s3_servers import seaweedfs, use_test_credentials, versitygw

OPTIONS = UpkeepOptions(snapshots_min=1)
# All files of a test are older.
LATER_MS = (time.time_ns() // 1_000_000) + 7 * 24 * 3600 * 1000


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return make_table(catalog_in(tmp_path, HookedCatalog))


def appended(table: Table, times: int, **given: Any) -> None:
    for _ in range(times):
        append(table, 5, **given)


def files_beneath(path: Path) -> set[str]:
    return {str(file) for file in path.rglob("*") if file.is_file()}


def summary_of(table: Table) -> dict[str, str]:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    return snapshot.summary.additional_properties


# ── small files ──


def test_small_files_of_a_day_become_one_with_the_same_rows(table: Table) -> None:
    appended(table, 8, days=(DAY, DAY - timedelta(days=1)))
    appended(table, 3, days=(datetime(1931, 5, 1, tzinfo=UTC), None), partition=2)
    before = offsets_of(table)
    old = table.current_snapshot()
    assert old is not None

    assert compact(table, OPTIONS) == (16, 2)

    assert len(files_of(table)) == 2 + 6
    assert_whole(table)
    assert offsets_of(table) == before == {"0": 40, "2": 15}
    assert summary_of(table)[TOPIC_ID] == IDS[TOPIC_ID]
    # Readers of changes skip it, and totals go on.
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary.operation is Operation.REPLACE
    assert (summary_of(table)["total-records"], summary_of(table)["total-data-files"]) == ("55", "8")
    # Who reads the old snapshot goes on.
    assert rows_of(table, old.snapshot_id) == rows_of(table)
    found = scanned(table, row_filter="offset = 7 and partition = 0")
    assert found["value"].to_pylist() == [b"value 7"]
    assert compact(table, OPTIONS) == (0, 0)
    append(table, 5)
    assert_whole(table)


def test_few_files_and_an_empty_table_are_left_alone(table: Table) -> None:
    assert Upkeep(OPTIONS).run(table) == UpkeepReport()
    appended(table, 7)
    assert compact(table, OPTIONS) == (0, 0)


def test_large_files_are_left_alone_and_groups_end_at_the_target_size(table: Table) -> None:
    appended(table, 20)
    size = max(task.file.file_size_in_bytes for task in table.scan().plan_files())
    assert compact(table, UpkeepOptions(target_bytes=size)) == (0, 0)
    assert compact(table, UpkeepOptions(target_bytes=10 * size)) == (20, 2)
    assert_whole(table)


def test_a_row_is_written_few_times_however_many_files_there_are() -> None:
    def entry(size: int) -> ManifestEntry:
        return cast("ManifestEntry", SimpleNamespace(data_file=SimpleNamespace(file_size_in_bytes=size)))

    files, written, target = cast("list[ManifestEntry]", []), 0, 128_000
    for _ in range(14_400):
        files.append(entry(100))
        small = [file for file in files if file.data_file.file_size_in_bytes < 0.75 * target]
        for group in list(grouped(small, target)):
            size = sum(file.data_file.file_size_in_bytes for file in group)
            files = [file for file in files if not any(file is member for member in group)] + [entry(size)]
            written += size
    assert sum(file.data_file.file_size_in_bytes for file in files) == 1_440_000
    assert written / 1_440_000 < 9
    assert len(files) < 1_440_000 / target * 1.5 + 16


def test_rows_of_an_older_schema_get_the_columns_of_the_new_one(table: Table) -> None:
    appended(table, 4)
    with table.update_schema() as change:
        change.add_column("note", StringType())
        change.rename_column("value", "body")
    for _ in range(4):
        append(table, 1, note="new", body=b"new")
    assert compact(table, OPTIONS) == (8, 1)
    found = scanned(table).sort_by("offset")
    assert found["note"].to_pylist() == [None] * 20 + ["new"] * 4
    assert found["body"].to_pylist()[:2] == [b"value 0", b"value 1"]
    assert_whole(table)


@pytest.mark.parametrize("when", ["before_commit", "in_commit"])
def test_a_compaction_that_meets_an_append_changes_nothing(table: Table, tmp_path: Path, when: str) -> None:
    appended(table, 8)
    writer = catalog_in(tmp_path).load_table("stele.orders")
    getattr(HookedCatalog, when).append(lambda: append(writer, 5))
    data = tmp_path / "warehouse"
    assert compact(table, OPTIONS) == (0, 0)
    table.refresh()
    assert offsets_of(table) == {"0": 45}
    assert_whole(table)
    assert not [name for name in files_beneath(data) if "compacted-" in name]
    assert compact(table, OPTIONS) == (9, 1)
    assert_whole(table)


def test_offsets_come_from_the_newest_ancestor_that_has_them(table: Table) -> None:
    appended(table, 8)
    commit(table, {})
    assert OFFSETS not in summary_of(table)
    assert compact(table, OPTIONS) == (8, 1)
    assert offsets_of(table) == {"0": 40}
    assert_whole(table)


# ── old snapshots ──


def test_snapshots_expire_some_time_after_they_were_replaced(table: Table) -> None:
    appended(table, 6)
    snapshots = table.metadata.snapshots
    options = UpkeepOptions(snapshots_min=2, retention_ms=1000)
    last_ms = snapshots[-1].timestamp_ms
    assert expired_snapshots(table.metadata, options, last_ms) == []
    # At this moment the last but one was replaced exactly so long ago.
    assert expire_snapshots(table, UpkeepOptions(snapshots_min=1, retention_ms=1000), last_ms + 1000) == 4
    assert [each.snapshot_id for each in table.metadata.snapshots] == [
        each.snapshot_id for each in snapshots[-2:]
    ]
    assert expire_snapshots(table, options, LATER_MS) == 0
    assert expire_snapshots(table, OPTIONS, LATER_MS) == 1
    assert_whole(table)
    append(table, 5)
    assert_whole(table)


def test_a_snapshot_that_was_the_newest_for_long_can_be_read_for_a_while(table: Table) -> None:
    appended(table, 2)
    old, new = table.metadata.snapshots
    soon_ms = new.timestamp_ms + OPTIONS.retention_ms
    assert expired_snapshots(table.metadata, OPTIONS, soon_ms) == []
    assert expired_snapshots(table.metadata, OPTIONS, soon_ms + 1) == [old.snapshot_id]


def test_tags_and_the_newest_offsets_stay(table: Table) -> None:
    appended(table, 5)
    tagged, *_, last = table.metadata.snapshots
    table.manage_snapshots().create_tag(tagged.snapshot_id, "audit").commit()
    for _ in range(3):
        commit(table, {})
    assert expire_snapshots(table, OPTIONS, LATER_MS) == 3
    kept = {each.snapshot_id for each in table.metadata.snapshots}
    assert {tagged.snapshot_id, last.snapshot_id} < kept
    assert len(kept) == 5
    assert len(rows_of(table, tagged.snapshot_id)) == 5


def test_an_expiry_that_meets_an_append_changes_nothing(table: Table, tmp_path: Path) -> None:
    appended(table, 3)
    writer = catalog_in(tmp_path).load_table("stele.orders")
    HookedCatalog.before_commit.append(lambda: append(writer, 5))
    assert expire_snapshots(table, OPTIONS, LATER_MS) == 0
    table.refresh()
    assert len(table.metadata.snapshots) == 4
    assert_whole(table)


@pytest.mark.parametrize("times", [40, pytest.param(1000, marks=pytest.mark.long)])
def test_metadata_does_not_grow_with_the_number_of_commits(tmp_path: Path, times: int) -> None:
    """As with its upkeep ``times`` // 10 times, and a retention of no time at all."""
    made = make_table(
        catalog_in(tmp_path),
        **{
            "write.metadata.delete-after-commit.enabled": "true",
            "write.metadata.previous-versions-max": "5",
            "commit.manifest-merge.enabled": "true",
        },
    )
    upkeep = Upkeep(UpkeepOptions(retention_ms=0, snapshots_min=1, interval_ms=0), now_ms=lambda: LATER_MS)
    sizes = list[int]()
    for number in range(times):
        if number % 4 == 3:
            with made.update_schema() as change:
                change.add_column(f"note{number}", StringType())
                change.delete_column(f"note{number - 4}") if number > 4 else None
        append(made, 1)
        if number % 10 == 9:
            upkeep.run(made)
            sizes.append(Path(made.metadata_location.removeprefix("file://")).stat().st_size)
    assert sizes[-1] < 1.2 * sizes[0]
    assert (len(made.metadata.snapshots), len(made.metadata.schemas)) == (2, 1)
    assert len(made.metadata.metadata_log) <= 5
    assert_whole(made)


# ── files that no snapshot names ──


def test_only_old_files_of_the_table_itself_are_removed(table: Table, tmp_path: Path) -> None:
    other = make_table(cast("HookedCatalog", table.catalog), "orders_errors")
    appended(table, 8)
    appended(other, 2)
    compact(table, OPTIONS)
    folder = tmp_path / "warehouse" / "stele" / "orders"
    stray = {
        folder / "data" / "timestamp_day=2026-11-30" / "left.parquet",
        folder / "data" / "left.parquet",
        folder / "metadata" / "left.avro",
    }
    kept = {folder / "notes.txt", folder.parent / "orders_errors" / "data" / "other.parquet"}
    for path in stray | kept:
        path.write_bytes(b"")
    before = files_beneath(tmp_path)

    now_ms = time.time_ns() // 1_000_000
    assert unnamed_files(table, OPTIONS, now_ms) == set()
    assert unnamed_files(table, OPTIONS, LATER_MS) == {str(path) for path in stray}
    now = [LATER_MS]
    upkeep = Upkeep(UpkeepOptions(retention_ms=2 * LATER_MS), now_ms=lambda: now[0])
    assert upkeep.run(table).removed_files == 0
    now[0] += OPTIONS.removal_interval_ms
    assert upkeep.run(table).removed_files == len(stray)

    assert before - files_beneath(tmp_path) == {str(path) for path in stray}
    for snapshot in table.metadata.snapshots:
        rows_of(table, snapshot.snapshot_id)
    assert_whole(other)


@pytest.mark.parametrize("warehouse", ["{0}//lake", "{0}/other/../lake", "{0}/link/lake"])
def test_a_warehouse_with_another_name_loses_no_file(tmp_path: Path, warehouse: str) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "link").symlink_to(tmp_path)
    table = make_table(catalog_in(tmp_path, warehouse=f"file://{warehouse.format(tmp_path)}"))
    appended(table, 8)
    assert unnamed_files(table, OPTIONS, LATER_MS) == set()
    assert_whole(table)
    compact(table, OPTIONS)
    assert_whole(table)


def test_files_of_expired_snapshots_are_removed_after_a_while(table: Table, tmp_path: Path) -> None:
    appended(table, 8)
    tagged, old = table.metadata.snapshots[0], table.metadata.snapshots[4]
    table.manage_snapshots().create_tag(tagged.snapshot_id, "audit").commit()
    reader = table.scan(snapshot_id=old.snapshot_id)
    now = [LATER_MS]
    upkeep = Upkeep(OPTIONS, now_ms=lambda: now[0])
    assert upkeep.run(table) == UpkeepReport(rewritten_files=8, written_files=1, expired_snapshots=6)
    assert upkeep.run(table) == UpkeepReport(), "nothing is due"
    # A reader that has begun goes on for an hour, even if it reads an old snapshot.
    assert len(cast("Any", reader).to_arrow()) == 25
    now[0] += OPTIONS.retention_ms + OPTIONS.removal_interval_ms
    assert upkeep.run(table) == UpkeepReport(expired_snapshots=1, removed_files=6)
    now[0] += OPTIONS.removal_interval_ms
    assert upkeep.run(table).removed_files > 0
    # Those of the newest snapshot and of the tag.
    assert len([name for name in files_beneath(tmp_path) if name.endswith(".parquet")]) == 2
    assert len(rows_of(table, tagged.snapshot_id)) == 5
    assert_whole(table)
    append(table, 5)
    assert_whole(table)


@pytest.mark.parametrize("server", [versitygw, pytest.param(seaweedfs, marks=pytest.mark.long)])
def test_the_upkeep_of_a_table_in_a_bucket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Callable[[], AbstractContextManager[str]]
) -> None:
    use_test_credentials(monkeypatch)
    with server() as url:
        place, _, endpoint = url.partition("?endpoint=")
        properties = {"warehouse": f"{place}/lake", "s3.endpoint": endpoint, "s3.region": "us-east-1"}
        table = make_table(catalog_in(tmp_path, HookedCatalog, **properties))
        appended(table, 8)
        now = [LATER_MS]
        upkeep = Upkeep(OPTIONS, now_ms=lambda: now[0])
        assert upkeep.run(table).rewritten_files == 8
        now[0] += 2 * OPTIONS.retention_ms
        assert upkeep.run(table).expired_snapshots == 1
        now[0] += OPTIONS.removal_interval_ms
        assert upkeep.run(table).removed_files > 8
        append(table, 5)
        assert_whole(table)


# ── kill -9 ──


# Forks for each line with a number, before there is a thread, and reports how the child ended.
_FORKS = """
import os, sys
from pathlib import Path
from stele.iceberg.upkeep import Upkeep, UpkeepOptions
from tests.support import iceberg_tables as tables

for line in sys.stdin:
    if not (child := os.fork()):
        tables.die_after(int(line))
        properties = {"py-io-impl": "tests.support.iceberg_tables.DyingFileIO"}
        catalog = tables.catalog_in(Path(sys.argv[1]), tables.HookedCatalog, **properties)
        options, later_ms = UpkeepOptions(snapshots_min=1), int(sys.argv[2])
        Upkeep(options, now_ms=lambda: later_ms).run(catalog.load_table("stele.orders"))
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.mark.parametrize("stride", [pytest.param(1, marks=pytest.mark.long), 10])
def test_a_table_is_right_whenever_its_upkeep_is_killed(tmp_path: Path, stride: int) -> None:
    here, backup = tmp_path / "here", tmp_path / "backup"
    here.mkdir()
    table = make_table(catalog_in(here))
    for _ in range(2):
        append(table, 8, files=4)
    (here / "warehouse" / "stele" / "orders" / "data" / "left.parquet").touch()
    shutil.copytree(here, backup)
    with subprocess.Popen(
        [sys.executable, "-c", _FORKS, here, str(LATER_MS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        code, number = -signal.SIGKILL, 0
        while code == -signal.SIGKILL:
            shutil.rmtree(here)
            shutil.copytree(backup, here)
            number += stride
            process.stdin.write(f"{number}\n")
            process.stdin.flush()
            code = int(process.stdout.readline())
            table = catalog_in(here).load_table("stele.orders")
            assert offsets_of(table) == {"0": 16}
            assert_whole(table)
            # What the dead have left is removed.
            now = [0]
            upkeep = Upkeep(OPTIONS, now_ms=lambda now=now: now[0])
            for now[0] in (2 * LATER_MS, 3 * LATER_MS, 4 * LATER_MS):
                upkeep.run(table)
            left = {name for name in files_beneath(here) if name.endswith(".parquet")}
            assert left == {name.removeprefix("file://") for name in files_of(table)}
            assert_whole(table)
        process.stdin.close()
    assert (code, number > 20) == (0, True)
