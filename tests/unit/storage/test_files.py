"""The real and the simulated file system: the same calls have the same results."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from app.storage.disk.files import Buffer, Files, RealFiles
from app.storage.disk.whole_files import read_file, write_file
from tests.support.simulated_files import SECTOR_BYTES, Fault, SimulatedFiles


@pytest.fixture(params=["real", "simulated"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Files, Path]:
    if request.param == "real":
        return RealFiles(), tmp_path
    files = SimulatedFiles()
    files.make_dir(Path("/place"))
    return files, Path("/place")


def test_bytes_are_where_they_were_written(place: tuple[Files, Path]) -> None:
    files, path = place
    file = files.open(path / "a", create=True)
    file.write_at(0, [b"hello ", bytearray(b"there"), memoryview(b"!")])
    file.write_at(3, [b"LO"])
    assert file.size() == 12
    assert file.read_at(0, 100) == b"helLO there!"
    assert file.read_at(6, 5) == b"there"
    assert file.read_at(12, 5) == b""
    file.write_at(14, [b"x"])
    assert file.read_at(11, 10) == b"!\x00\x00x"
    file.truncate(2)
    assert file.read_at(0, 100) == b"he"
    file.truncate(4)
    assert file.read_at(0, 100) == b"he\x00\x00"
    file.sync()
    file.close()
    file.close()


def test_more_buffers_than_one_call_takes_are_written(place: tuple[Files, Path]) -> None:
    files, path = place
    file = files.open(path / "a", create=True)
    buffers: list[Buffer] = [b"%04d" % number for number in range(3000)]
    buffers.insert(5, b"")
    file.write_at(0, buffers)
    assert file.read_at(0, 1 << 20) == b"".join(buffers)
    file.close()


def test_a_read_that_may_not_wait_gives_all_or_nothing(place: tuple[Files, Path]) -> None:
    files, path = place
    file = files.open(path / "a", create=True)
    file.write_at(0, [b"hello"])
    assert file.read_at_nowait(1, 3) in (b"ell", None)
    assert file.read_at_nowait(3, 5) is None
    file.close()


def test_names(place: tuple[Files, Path]) -> None:
    files, path = place
    with pytest.raises(FileNotFoundError):
        files.open(path / "a")
    files.make_dir(path / "sub")
    files.make_dir(path / "sub")
    for name in ("b", "a"):
        write_file(files, path / "sub" / name, name.encode())
    assert files.list_dir(path / "sub") == ["a", "b"]
    assert files.size(path / "sub" / "a") == 1
    files.rename(path / "sub" / "a", path / "sub" / "b")
    assert files.list_dir(path / "sub") == ["b"]
    assert read_file(files, path / "sub" / "b") == b"a"
    assert read_file(files, path / "sub" / "a") is None
    files.remove(path / "sub" / "b")
    with pytest.raises(FileNotFoundError):
        files.remove(path / "sub" / "b")
    write_file(files, path / "sub" / "c", b"")
    files.sync_dir(path / "sub")
    files.remove_tree(path / "sub")
    assert not files.exists(path / "sub")
    with pytest.raises(FileNotFoundError):
        files.make_dir(path / "no" / "parent")


def test_an_open_file_outlives_its_name(place: tuple[Files, Path]) -> None:
    files, path = place
    file = files.open(path / "a", create=True)
    file.write_at(0, [b"still"])
    files.remove(path / "a")
    assert file.read_at(0, 10) == b"still"
    file.close()


def test_a_closed_file_is_an_error(place: tuple[Files, Path]) -> None:
    files, path = place
    file = files.open(path / "a", create=True)
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.read_at(0, 1)
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.sync()


def test_a_lock_is_held_once(place: tuple[Files, Path]) -> None:
    files, path = place
    lock = files.lock(path / "lock")
    with pytest.raises(BlockingIOError):
        files.lock(path / "lock")
    lock.release()
    files.lock(path / "lock").release()
    assert isinstance(files.boot_id(), str)


def test_a_short_write_continues_after_what_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.pwritev

    def short(fd: int, buffers: Sequence[Buffer], position: int) -> int:
        data = b"".join(buffers)
        return real(fd, [data[: max(1, len(data) // 3)]], position)

    monkeypatch.setattr(os, "pwritev", short)
    file = RealFiles().open(tmp_path / "a", create=True)
    buffers: list[Buffer] = [b"abc", b"", b"defgh", b"i" * 50]
    file.write_at(2, buffers)
    assert file.read_at(2, 100) == b"".join(buffers)
    file.close()


def test_a_short_read_continues_after_what_was_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pread
    file = RealFiles().open(tmp_path / "a", create=True)
    file.write_at(0, [bytes(range(100))])

    def short(fd: int, size: int, position: int) -> bytes:
        return real(fd, max(1, size // 2), position)

    monkeypatch.setattr(os, "pread", short)
    assert file.read_at(10, 50) == bytes(range(10, 60))
    assert file.read_at(90, 50) == bytes(range(90, 100))
    file.close()


# ── the simulation alone: what it takes away, and what never ──


def disk_with(data: bytes) -> SimulatedFiles:
    files = SimulatedFiles()
    file = files.open(Path("/a"), create=True)
    file.write_at(0, [data])
    file.sync()
    files.sync_dir(Path("/"))
    return files


def test_what_is_synced_survives_every_power_cut() -> None:
    for seed in range(100):
        files = disk_with(b"synced" * 300)
        files.open(Path("/a")).write_at(1800, [b"not" * 500])
        assert files.power_cut(Random(seed)).content(Path("/a")).startswith(b"synced" * 300)


def test_what_is_not_synced_survives_in_every_part() -> None:
    survivors: set[bytes] = set()
    for seed in range(300):
        files = disk_with(b"")
        files.open(Path("/a")).write_at(0, [b"x" * (4 * SECTOR_BYTES)])
        content = bytes(files.power_cut(Random(seed)).content(Path("/a")))
        survivors.add(
            bytes(
                content[at : at + SECTOR_BYTES].count(b"x") // SECTOR_BYTES
                for at in range(0, len(content), SECTOR_BYTES)
            )
        )
    assert len({parts for parts in survivors if len(parts) == 4}) == 16, "each subset of the sectors"
    assert b"" in survivors


def test_a_name_without_a_directory_sync_may_be_lost_with_its_synced_content() -> None:
    outcomes: set[bool] = set()
    for seed in range(30):
        files = SimulatedFiles()
        file = files.open(Path("/a"), create=True)
        file.write_at(0, [b"x"])
        file.sync()
        outcomes.add(files.power_cut(Random(seed)).exists(Path("/a")))
    assert outcomes == {True, False}


def test_a_killed_process_leaves_everything_and_the_power_may_still_go() -> None:
    files = SimulatedFiles()
    write_file(files, Path("/a"), b"x" * 100, sync=False)
    files = files.crash(Random(0))
    assert files.content(Path("/a")) == b"x" * 100
    assert files.boot_id() == "boot-1"
    assert {files.power_cut(Random(seed)).exists(Path("/a")) for seed in range(30)} == {True, False}
    assert files.power_cut(Random(0)).boot_id() == "boot-2"


def test_a_failed_sync_forgets_what_it_should_have_written() -> None:
    files = disk_with(b"")
    file = files.open(Path("/a"))
    file.write_at(0, [b"lost"])
    files.fail(Fault(errno=errno.EIO, kinds=("sync",)))
    with pytest.raises(OSError, match="Input/output error"):
        file.sync()
    file.sync()
    assert file.read_at(0, 10) == b"lost"
    assert all(not files.power_cut(Random(seed)).content(Path("/a")) for seed in range(30))


def test_a_failing_write_may_leave_a_part() -> None:
    files = disk_with(b"")
    files.fail(Fault(errno=errno.ENOSPC, kinds=("write",), written=3))
    with pytest.raises(OSError, match="No space left"):
        files.open(Path("/a")).write_at(0, [b"hello"])
    assert files.content(Path("/a")) == b"hel"


def test_a_directory_can_be_locked_where_nothing_can_be_written(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        lock = RealFiles().lock(tmp_path / "lock")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    with pytest.raises(BlockingIOError):
        RealFiles().lock(tmp_path / "lock")
    lock.release()
    RealFiles().lock(tmp_path / "lock").release()
