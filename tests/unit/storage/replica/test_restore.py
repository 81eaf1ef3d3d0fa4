"""A restore that dies at any call of the disk is never served, and the next one makes the same directory."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from app import restoring
from app.restoring import STORES
from app.settings import Settings
from app.storage.disk.files import Files, Lock, RealFiles
from app.storage.logs.data_dir import DataDir
from app.storage.replica.cut import SegmentRuns
from app.storage.replica.restore import Restored, RestoreFailed, RestoreOptions, restore
from app.storage.replica.restore_plan import CatalogTopic
from app.storage.replica.staging import NotEmpty, is_interrupted
from app.storage.setup_problems import InvalidStorage
from tests.support.fast_directory import fast_directory
from tests.support.made_replica import (
    MadeReplica,
    batch_at,
    header_of,
    made_replica,
    partition_change,
    store_images,
)

NOW_MS = 1_795_000_000_000
_prepare = cast(
    "Callable[[int, Path, Collection[str] | None], list[CatalogTopic]]", vars(restoring)["_prepare_stores"]
)


class Killed(BaseException):
    """The process has died: nothing is done any more."""


class _DyingLock:
    """A lock that may be released by its owner, and when that dies."""

    def __init__(self, lock: Lock) -> None:
        self._lock: Lock | None = lock

    def release(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()


class DyingFiles:
    """The files of this machine, until ``left`` calls that change something are done."""

    _CHANGES = frozenset(
        {"open", "make_dir", "rename", "remove", "remove_tree", "sync_dir", "many_syncs", "lock"}
    )

    def __init__(self, left: int) -> None:
        self.left = left
        self.calls = 0
        self._locks: list[Lock] = []
        self._files = RealFiles()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._files, name)
        if name not in self._CHANGES:
            return found

        def call(*arguments: Any, **options: Any) -> Any:
            self.calls += 1
            if self.calls > self.left:
                raise Killed
            result = found(*arguments, **options)
            if name == "lock":
                result = _DyingLock(result)
                self._locks.append(result)
            return result

        return call

    def end(self) -> None:
        """Release its locks, as the kernel does when a process dies."""
        for lock in self._locks:
            lock.release()


class CancelledInFinish(RealFiles):
    """The files of this machine; the restore is cancelled while it moves what it has written to its place."""

    def __init__(self, data_dir: Path) -> None:
        self.cancel: Callable[[], object] | None = None
        self._data_dir = data_dir
        self._has_removed = threading.Event()

    def rename(self, source: Path, target: Path) -> None:
        cancel = self.cancel
        if cancel is not None and self._data_dir in (target, target.parent):
            self.cancel = None
            cancel()
            # A restore that does not wait for this thread removes the files now; one that does makes this time out.
            self._has_removed.wait(0.2)
        super().rename(source, target)

    def remove_tree(self, path: Path) -> None:
        super().remove_tree(path)
        self._has_removed.set()


def restored(
    replica: MadeReplica, data_dir: Path, files: Files | None = None, *, topics: Collection[str] | None = None
) -> Restored:
    return asyncio.run(restore(replica.store, files or RealFiles(), data_dir, options_of(topics)))


def options_of(topics: Collection[str] | None = None) -> RestoreOptions:
    return RestoreOptions(
        stores=STORES,
        prepare=partial(_prepare, NOW_MS),
        advance=lambda done, total: None,
        now_ms=NOW_MS,
        topics=topics,
    )


def logs_of(data_dir: Path) -> dict[str, bytes]:
    return {str(path.relative_to(data_dir)): path.read_bytes() for path in data_dir.rglob("*.log")}


EXPECTED = {
    "orders-0/00000000000000000000.log": batch_at(0, [b"zero"]) + batch_at(1, [b"one"]),
    "orders-0/00000000000000000002.log": batch_at(2, [b"two"]),
    "orders-1/00000000000000000000.log": b"",
}


def test_makes_the_files_of_a_data_directory(tmp_path: Path) -> None:
    done = restored(made_replica(), tmp_path / "data")

    assert (done.topics, done.partitions, done.time_ms) == (1, 2, 0)
    assert logs_of(tmp_path / "data") == EXPECTED
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == [
        "groups.sqlite",
        "lock",
        "log-start-offset-checkpoint",
        "metadata.sqlite",
        "orders-0",
        "orders-1",
        "start-record",
    ]
    assert {path.name for path in (tmp_path / "data/orders-0").iterdir()} == {
        "00000000000000000000.log",
        "00000000000000000002.log",
        "leader-epoch-checkpoint",
        "partition.metadata",
    }
    for path in (tmp_path / "data").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path
    assert list(tmp_path.iterdir()) == [tmp_path / "data"]


def test_the_next_leader_epoch_is_above_those_of_the_chain_and_of_other_restores(tmp_path: Path) -> None:
    epochs: list[int] = []
    for number in range(2):
        replica = made_replica()
        # The newest cut is of another generation, and cannot be restored by its base alone.
        replica.cut(header_of(1, base=0, generation=2**30))
        restored(replica, tmp_path / str(number))
        start = DataDir(RealFiles(), tmp_path / str(number)).take()
        assert not start.is_new
        assert not start.was_clean
        assert start.same_boot
        epochs.append(start.leader_epoch)

    assert epochs == [2**30 + 1] * 2
    restored(made_replica(), tmp_path / "old")
    # Of a chain whose newest cuts are lost: the seconds since 2025.
    assert (
        DataDir(RealFiles(), tmp_path / "old").take().leader_epoch == (NOW_MS - 1_735_689_600_000) // 1000 + 1
    )


def _yes(_path: Path) -> bool:
    return True


@pytest.mark.parametrize("place", ["beside", "inside"])
def test_a_restore_that_dies_is_never_served(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if place == "inside":
        monkeypatch.setattr(Path, "is_mount", _yes)
    # Nothing here is to survive a loss of power.
    folder = Path(tempfile.mkdtemp(dir=fast_directory() or tmp_path))
    request.addfinalizer(lambda: shutil.rmtree(folder))
    steps = 0
    while True:
        data_dir = folder / str(steps) / "data"
        data_dir.mkdir(parents=True)
        files = DyingFiles(steps)
        try:
            restored(made_replica(), data_dir, cast("Files", files))
        except Killed:
            files.end()
            # A broker either finds nothing, or refuses.
            names = {path.name for path in data_dir.iterdir()} if data_dir.exists() else set[str]()
            assert not names or is_interrupted(data_dir) or (names and logs_of(data_dir) == EXPECTED)
        else:
            break
        if logs_of(data_dir) != EXPECTED or is_interrupted(data_dir):
            restored(made_replica(), data_dir)
        assert logs_of(data_dir) == EXPECTED
        assert not is_interrupted(data_dir)
        assert (data_dir / "start-record").exists()
        steps += 1
    assert steps > 20


@pytest.mark.parametrize("place", ["beside", "inside"])
def test_a_restore_that_is_cancelled_at_its_end_leaves_a_whole_directory(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if place == "inside":
        monkeypatch.setattr(Path, "is_mount", _yes)
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    files = CancelledInFinish(data_dir)

    async def run() -> None:
        work = asyncio.ensure_future(restore(made_replica().store, files, data_dir, options_of()))
        loop = asyncio.get_running_loop()
        files.cancel = lambda: loop.call_soon_threadsafe(work.cancel)
        with pytest.raises(asyncio.CancelledError):
            await work

    asyncio.run(run())
    assert logs_of(data_dir) == EXPECTED
    assert not is_interrupted(data_dir)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    assert set(STORES) <= {path.name for path in data_dir.iterdir()}


def test_nothing_of_a_restore_that_was_interrupted_is_kept(tmp_path: Path) -> None:
    (tmp_path / "data.restoring" / "other-0").mkdir(parents=True)
    (tmp_path / "data.restoring" / "other-0" / "00000000000000000000.log").write_bytes(b"of another cut")

    restored(made_replica(), tmp_path / "data")

    assert logs_of(tmp_path / "data") == EXPECTED
    assert list(tmp_path.iterdir()) == [tmp_path / "data"]


def test_a_broker_refuses_what_was_interrupted(tmp_path: Path) -> None:
    (tmp_path / "data" / "restoring").mkdir(parents=True)
    settings = Settings.model_validate({"data_dir": tmp_path / "data"})

    with pytest.raises(InvalidStorage, match="was interrupted: run stele restore again"):
        asyncio.run(restoring.prepare_directory(settings))


def test_the_extra_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # As if obstore were not installed, which this module imports.
    monkeypatch.setitem(sys.modules, "app.storage.replica.bucket_url", None)

    with pytest.raises(InvalidStorage, match="a replica needs the extra bucket"):
        asyncio.run(restoring.summarize("s3://backups/stele"))


def test_two_restores_do_not_write_the_same_directory(tmp_path: Path) -> None:
    (tmp_path / "data.restoring").mkdir()
    lock = RealFiles().lock(tmp_path / "data.restoring" / "lock")

    with pytest.raises(NotEmpty, match="is being restored or used by another process"):
        restored(made_replica(), tmp_path / "data")
    lock.release()
    restored(made_replica(), tmp_path / "data")


def test_a_directory_that_a_broker_is_starting_in_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    lock = RealFiles().lock(tmp_path / "data" / "lock")

    with pytest.raises(NotEmpty, match="used by another process"):
        restored(made_replica(), tmp_path / "data")
    lock.release()
    # A lock alone is no data.
    restored(made_replica(), tmp_path / "data")


def test_a_directory_with_data_stays(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "start-record").write_text("{}")

    with pytest.raises(NotEmpty, match="is not empty"):
        restored(made_replica(), tmp_path / "data")
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["start-record"]


def test_a_damaged_store_is_found(tmp_path: Path) -> None:
    replica = made_replica()
    images = store_images({"orders": 2})
    # A page of the tables, with the right CRC: it was damaged before it came here.
    images["metadata.sqlite"] = (
        images["metadata.sqlite"][:4096] + b"\xff" * 8192 + images["metadata.sqlite"][12288:]
    )
    replica.cut(header_of(1), [replica.store_change(name, image) for name, image in images.items()])

    with pytest.raises(RestoreFailed, match=r"cut 1 of .* cannot be restored: metadata\.sqlite is damaged"):
        restored(replica, tmp_path / "data")
    assert list(tmp_path.iterdir()) == []


def test_partitions_that_the_catalog_lacks_are_not_restored(tmp_path: Path) -> None:
    replica = made_replica()
    replica.cut(header_of(1, base=0), [partition_change("deleted", 5, [replica.segment(0, 1, b"x")])])

    assert restored(replica, tmp_path / "data").partitions == 2
    assert logs_of(tmp_path / "data") == EXPECTED


def log_that_ends_with(replica: MadeReplica, *segments: SegmentRuns) -> None:
    replica.cut(header_of(1, base=0), [partition_change("orders", 0, segments)])


def test_offsets_that_were_lost_at_the_end_are_not_given_out_again(tmp_path: Path) -> None:
    whole, damaged = made_replica(), made_replica()
    batch = batch_at(0, [b"a", b"b"])
    log_that_ends_with(whole, whole.segment(0, 2, batch), whole.segment(2, 0))
    # Its last batch was lost, and the broker went on behind it.
    log_that_ends_with(damaged, damaged.segment(0, 9, batch + b"\xff" * 61), damaged.segment(9, 0))

    restored(whole, tmp_path / "whole")
    restored(damaged, tmp_path / "damaged")

    assert not (tmp_path / "whole" / "recovery-point-offset-checkpoint").exists()
    assert (tmp_path / "damaged" / "recovery-point-offset-checkpoint").read_text() == "0\n1\norders 0 9\n"


def test_a_missing_cut_is_named(tmp_path: Path) -> None:
    replica = made_replica()
    replica.cut(header_of(2, base=0))

    with pytest.raises(RestoreFailed, match="c/000000000001"):
        restored(replica, tmp_path / "data")


def test_the_record_of_a_start_is_read_by_a_broker(tmp_path: Path) -> None:
    restored(made_replica(), tmp_path / "data")

    record = json.loads((tmp_path / "data" / "start-record").read_text())
    assert record["boot_id"] == RealFiles().boot_id()
