"""A recovery syncs what it keeps before anyone reads it, and all partitions together (ADR-0054)."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from app.errors import LogDirFailed
from app.storage.disk import files as files_module
from app.storage.disk.files import RealFiles
from app.storage.disk.whole_files import write_many
from app.storage.recovery.checkpoint import LEADER_EPOCHS, LeaderEpochs
from app.storage.topic_partition import TopicPartition
from tests.support.batches import spec_of
from tests.support.engines import DATA, QUIET, append, open_engine, read_from
from tests.support.simulated_files import Fault, SimulatedFiles
from tests.support.simulated_time import FOREVER_MS, SimulatedClock, simulated

NAMES = [TopicPartition("orders", number) for number in range(3)]
# Nothing but the start itself writes.
NO_CHECKPOINT = replace(QUIET, first_checkpoint_ms=FOREVER_MS)


async def killed_with_records() -> SimulatedFiles:
    """Return the disk that a killed broker leaves: a record in each partition, and none synced."""
    files, clock = SimulatedFiles(), SimulatedClock()
    engine = await open_engine(
        files, [spec_of(name, clock=clock) for name in NAMES], clock=clock, options=NO_CHECKPOINT
    )
    for name in NAMES:
        append(engine, b"first", b"second", name=name)
    return files.crash(Random(0))


async def restarted(files: SimulatedFiles) -> dict[TopicPartition, list[tuple[int, bytes | None]]]:
    """Start on ``files``; return all records."""
    clock = SimulatedClock()
    engine = await open_engine(
        files, [spec_of(name, clock=clock) for name in NAMES], clock=clock, options=NO_CHECKPOINT
    )
    return {name: await read_from(engine, 0, name=name) for name in NAMES}


@simulated
async def test_what_is_served_after_a_recovery_survives_the_next_loss_of_power() -> None:
    files = await killed_with_records()
    served = await restarted(files)
    assert [value for _, value in served[NAMES[0]]] == [b"first", b"second"]
    for seed in range(20):
        assert await restarted(files.power_cut(Random(seed))) == served


@simulated
async def test_a_loss_of_power_between_the_syncs_leaves_whole_records() -> None:
    before = await killed_with_records()
    for call in range(1, 2 * len(NAMES) + 1):
        files = before.crash(Random(call))
        left: list[SimulatedFiles] = []
        syncs = 0
        called = files.called

        def count(
            kind: str,
            path: Path,
            files: SimulatedFiles = files,
            call: int = call,
            left: list[SimulatedFiles] = left,
            called: Callable[[str, Path], None] = called,
        ) -> None:
            nonlocal syncs
            if kind in ("sync", "sync_dir") and str(path).startswith(f"{DATA}/orders-"):
                syncs += 1
                if syncs == call:
                    left.append(files.power_cut(Random(call)))
            called(kind, path)

        files.called = count
        await restarted(files)
        assert left, "a recovery syncs each segment and each directory"
        for records in (await restarted(left[0])).values():
            assert [value for _, value in records] in ([], [b"first", b"second"])


@simulated
async def test_a_failed_sync_refuses_the_start_and_leaves_no_file_open() -> None:
    files = await killed_with_records()
    files.fail(Fault(errno=errno.EIO, kinds=("sync",), call=3))
    clock = SimulatedClock()
    with pytest.raises(LogDirFailed):
        await open_engine(
            files, [spec_of(name, clock=clock) for name in NAMES], clock=clock, options=NO_CHECKPOINT
        )
    assert not files.handles


@simulated
async def test_epochs_are_found_again_until_a_checkpoint_has_written_them() -> None:
    files = await killed_with_records()
    await restarted(files)
    assert not files.exists(DATA / str(NAMES[0]) / LEADER_EPOCHS)
    for seed in range(5):
        after, clock = files.power_cut(Random(seed)), SimulatedClock()
        engine = await open_engine(after, [spec_of(name, clock=clock) for name in NAMES], clock=clock)
        assert [engine.epoch_end_offset(name, 0) for name in NAMES] == [(0, 2)] * 3
        # The first checkpoint was made.
        cut = after.power_cut(Random(seed))
        for name in NAMES:
            assert LeaderEpochs.read(cut, DATA / str(name)).entries() == [(0, 0)]


# ── many syncs on this machine ──


def _has_it(_fd: int) -> bool:
    return True


def _has_none(_fd: int) -> bool:
    return False


def paths_in(directory: Path, count: int) -> list[Path]:
    """Make files in directories of their own; return both."""
    paths: list[Path] = []
    for number in range(count):
        place = directory / str(number)
        place.mkdir()
        (place / "file").write_bytes(b"x")
        paths += [place / "file", place]
    return paths


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Collect the paths that are synced on their own."""
    paths: list[Path] = []
    sync_path = files_module._sync_path

    def sync(path: Path) -> None:
        paths.append(path)
        sync_path(path)

    monkeypatch.setattr(files_module, "_sync_path", sync)
    return paths


def test_many_paths_take_one_sync_where_that_is_enough(tmp_path: Path, synced: list[Path]) -> None:
    paths = paths_in(tmp_path, 40)
    syncs = RealFiles().many_syncs(tmp_path)
    syncs.sync(paths)
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        has_syncfs = files_module.has_syncfs(fd)
    finally:
        os.close(fd)
    assert sorted(synced) == ([] if has_syncfs else sorted(paths))
    synced.clear()
    syncs.sync(paths[:10])
    assert sorted(synced) == sorted(paths[:10])
    syncs.close()
    syncs.close()


def test_paths_are_synced_one_by_one_elsewhere(
    tmp_path: Path, synced: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_module, "has_syncfs", _has_none)
    paths = paths_in(tmp_path, 40)
    syncs = RealFiles().many_syncs(tmp_path)
    syncs.sync(paths)
    assert sorted(synced) == sorted(paths)
    with pytest.raises(FileNotFoundError):
        syncs.sync([*paths, tmp_path / "none"])
    syncs.close()


def test_a_path_on_another_device_is_synced_on_its_own(
    tmp_path: Path, synced: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_module, "has_syncfs", _has_it)
    syncs = RealFiles().many_syncs(tmp_path)
    # As if the root were on another device than everything in it.
    monkeypatch.setattr(syncs, "_device", -1)
    paths = paths_in(tmp_path, 40)
    syncs.sync(paths)
    assert sorted(synced) == sorted(paths)
    syncs.close()


def test_a_failed_sync_of_the_file_system_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_module, "has_syncfs", _has_it)
    paths = paths_in(tmp_path, 40)
    syncs = RealFiles().many_syncs(tmp_path)
    syncs.close()
    with pytest.raises(OSError, match="syncfs") as caught:
        syncs.sync(paths)
    assert caught.value.errno == errno.EBADF


@pytest.mark.parametrize("count", [1, 40])
def test_an_error_of_the_first_sync_is_reported_by_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(files_module, "has_syncfs", _has_it)
    syncs = RealFiles().many_syncs(tmp_path)
    # The kernel reports a failed write to each descriptor once.
    results = iter([errno.EIO])

    def syncfs(_fd: int) -> int:
        return next(results, 0)

    monkeypatch.setattr(files_module, "syncfs", syncfs)
    syncs.begin()
    with pytest.raises(OSError, match="syncfs") as caught:
        syncs.sync(paths_in(tmp_path, count))
    assert caught.value.errno == errno.EIO
    syncs.close()


def test_many_files_are_replaced_whole() -> None:
    for seed in range(100):
        random = Random(seed)
        files = SimulatedFiles()
        paths: list[Path] = []
        for number in range(3):
            files.make_dir(Path(f"/{number}"))
            files.create_file(Path(f"/{number}/file"), b"old")
            paths.append(Path(f"/{number}/file"))
        files.sync_dir(Path("/"))
        left: list[SimulatedFiles] = []
        files.alarm(random.randint(1, 24), lambda f=files, r=random, to=left: to.append(f.power_cut(r)))
        write_many(files, Path("/"), dict.fromkeys(paths, b"new"))
        after = (left or [files.power_cut(random)])[0]
        for path in paths:
            assert after.content(path) in ((b"old", b"new") if left else (b"new",))
