"""The data directory: its lock, how the last run ended, and the leader epoch that follows."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from random import Random

import pytest

from app.errors import DataDirLocked
from app.storage.disk.files import RealFiles
from app.storage.logs.data_dir import CLEAN_SHUTDOWN, LOCK, START_RECORD, DataDir, Start
from tests.support.simulated_files import Fault, SimulatedFiles

DATA = Path("/data")


def take(files: SimulatedFiles) -> tuple[DataDir, Start]:
    data_dir = DataDir(files, DATA)
    return data_dir, data_dir.take()


def test_a_new_directory_is_neither_clean_nor_of_this_boot() -> None:
    data_dir, start = take(SimulatedFiles())
    assert start == Start(is_new=True, was_clean=False, same_boot=False, leader_epoch=0)
    data_dir.release(clean=True)


def test_a_clean_end_is_found_once() -> None:
    files = SimulatedFiles()
    take(files)[0].release(clean=True)
    data_dir, start = take(files)
    assert (start.was_clean, start.leader_epoch) == (True, 0)
    assert DATA / CLEAN_SHUTDOWN not in files.paths()
    data_dir.release(clean=False)
    _, start = take(files)
    assert (start.was_clean, start.is_new, start.leader_epoch) == (False, False, 1)


def test_the_machine_counts_as_restarted_until_all_is_recovered() -> None:
    files = SimulatedFiles()
    data_dir, _ = take(files)
    data_dir.settle()
    files = files.crash(Random(0))
    data_dir, start = take(files)
    assert start.same_boot
    files = files.power_cut(Random(0))
    # However often the process dies before the partitions are recovered.
    for _ in range(3):
        data_dir, start = take(files)
        assert not start.same_boot
        files = files.crash(Random(0))
    data_dir, _ = take(files)
    data_dir.settle()
    _, start = take(files.crash(Random(0)))
    assert start.same_boot


def test_the_leader_epoch_goes_up_with_each_unclean_end_whenever_the_power_goes() -> None:
    for seed in range(200):
        random = Random(seed)
        files = SimulatedFiles()
        used: list[int] = []
        for _ in range(5):
            left: list[SimulatedFiles] = []
            files.alarm(random.randint(1, 40), lambda f=files, r=random, to=left: to.append(f.power_cut(r)))
            data_dir, start = take(files)
            if not left:
                assert start.leader_epoch not in used
                assert start.leader_epoch >= max([0, *used])
                used.append(start.leader_epoch)
            data_dir.release(clean=False)
            files = left[0] if left else files.power_cut(random)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff\xff", b'{"leader_epoch": "x"}'])
def test_a_corrupt_start_record_is_an_unclean_end(content: bytes) -> None:
    files = SimulatedFiles()
    take(files)[0].release(clean=False)
    files.damage(DATA / START_RECORD, content)
    _, start = take(files)
    assert not start.was_clean
    assert not start.same_boot
    assert not start.is_new


def test_the_lock_is_exclusive_and_says_who_has_it(tmp_path: Path) -> None:
    first = DataDir(RealFiles(), tmp_path)
    first.take()
    second = DataDir(RealFiles(), tmp_path)
    with pytest.raises(DataDirLocked) as error:
        second.take()
    assert (tmp_path / LOCK).read_text().strip() in str(error.value)
    first.release(clean=False)
    second.take()
    second.release(clean=False)


def test_a_directory_that_cannot_be_used_is_not_kept_locked() -> None:
    for call in range(1, 20):
        files = SimulatedFiles()
        fault = files.fail(Fault(errno=errno.EIO, call=call))
        try:
            take(files)[0].release(clean=False)
        except OSError:
            files.heal()
            take(files)
        else:
            assert not fault.hits, "an error is not swallowed"
            return
    pytest.fail("there are not that many calls")


def test_the_record_holds_boot_and_epoch() -> None:
    files = SimulatedFiles()
    data_dir, _ = take(files)
    data_dir.settle()
    assert json.loads(files.content(DATA / START_RECORD)) == {"boot_id": "boot-1", "leader_epoch": 0}
