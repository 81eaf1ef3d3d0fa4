"""Checkpoint files have Apache Kafka's layout, are replaced as a whole, and absent if corrupt."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from app.storage.recovery.checkpoint import (
    LEADER_EPOCHS,
    LeaderEpochs,
    read_offsets,
    write_epochs,
    write_offsets,
)
from tests.support.simulated_files import SimulatedFiles

FILE = Path("/data/recovery-point-offset-checkpoint")
OFFSETS = {("orders", 0): 4242, ("orders", 1): 17, ("a.b_c-d", 0): 0}


@pytest.fixture
def files() -> SimulatedFiles:
    files = SimulatedFiles()
    files.make_dir(Path("/data"))
    files.sync_dir(Path("/"))
    return files


def test_offsets_have_the_documented_layout(files: SimulatedFiles) -> None:
    write_offsets(files, FILE, {("orders", 0): 4242, ("orders", 1): 17}.items())
    assert files.content(FILE) == b"0\n2\norders 0 4242\norders 1 17\n"


def test_offsets_come_back(files: SimulatedFiles) -> None:
    for offsets in (OFFSETS, {}, {("x", 3): 2**63 - 1}):
        write_offsets(files, FILE, offsets.items())
        assert read_offsets(files, FILE) == offsets


def test_a_file_that_is_not_there_has_no_offsets(files: SimulatedFiles) -> None:
    assert read_offsets(files, FILE) == {}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"0\n",
        b"0\n1\n",
        b"0\n2\norders 0 1\n",
        b"1\n1\norders 0 1\n",
        b"0\nx\norders 0 1\n",
        b"0\n1\norders 0\n",
        b"0\n1\norders 0 1 1\n",
        b"0\n1\norders 0 one\n",
        b"0\n1\norders zero 1\n",
        b"0\n1\norders 0 -1\n",
        b"0\n1\n\xff\xfe\x00\n",
    ],
)
def test_a_corrupt_file_counts_as_absent(files: SimulatedFiles, content: bytes) -> None:
    files.create_file(FILE, content)
    assert read_offsets(files, FILE) == {}


def test_after_a_power_cut_the_file_is_the_old_one_or_the_new_one() -> None:
    for seed in range(200):
        files = SimulatedFiles()
        files.make_dir(Path("/data"))
        files.sync_dir(Path("/"))
        write_offsets(files, FILE, {("orders", 0): 1}.items())
        random = Random(seed)
        left: list[SimulatedFiles] = []
        files.alarm(random.randint(1, 7), lambda f=files, r=random, to=left: to.append(f.power_cut(r)))
        write_offsets(files, FILE, OFFSETS.items())
        after = (left or [files.power_cut(random)])[0]
        saved = read_offsets(after, FILE)
        assert saved in ({("orders", 0): 1}, OFFSETS)
        if not left:
            assert saved == OFFSETS


def test_epochs_have_the_documented_layout(files: SimulatedFiles) -> None:
    epochs = LeaderEpochs()
    epochs.note(1, 0)
    epochs.note(3, 1200)
    write_epochs(files, Path("/data"), {Path("/data"): epochs})
    assert files.content(Path("/data") / LEADER_EPOCHS) == b"0\n2\n1 0\n3 1200\n"
    assert LeaderEpochs.read(files, Path("/data")).latest == 3


@pytest.mark.parametrize("lines", [b"1 0 0", b"1", b"x 0", b"-1 0", b"3 5\n2 9", b"3 5\n3 9", b"3 5\n4 2"])
def test_corrupt_epochs_count_as_absent(files: SimulatedFiles, lines: bytes) -> None:
    files.create_file(Path("/data") / LEADER_EPOCHS, b"0\n%d\n%s\n" % (lines.count(b"\n") + 1, lines))
    assert LeaderEpochs.read(files, Path("/data")).latest == -1


def test_an_epoch_is_noted_with_its_first_offset() -> None:
    epochs = LeaderEpochs()
    assert (epochs.latest, epochs.is_dirty) == (-1, False)
    for epoch, offset in ((1, 0), (1, 10), (4, 20), (2, 30)):
        epochs.note(epoch, offset)
    assert epochs.is_dirty
    assert epochs.latest == 4
    assert [epochs.epoch_at(offset) for offset in (0, 19, 20, 99)] == [1, 1, 4, 4]
    assert epochs.end_offset_of(0, log_end_offset=50) == (0, 0), "nothing of it is left"
    assert epochs.end_offset_of(3, log_end_offset=50) == (1, 20)
    assert epochs.end_offset_of(9, log_end_offset=50) == (4, 50)
    assert LeaderEpochs().end_offset_of(0, log_end_offset=50) == (0, 50)


def test_epochs_of_what_was_cut_are_forgotten(files: SimulatedFiles) -> None:
    epochs = LeaderEpochs([(1, 0), (3, 1200)])
    epochs.truncate_to(1201)
    assert not epochs.is_dirty
    epochs.truncate_to(1200)
    assert (epochs.latest, epochs.is_dirty) == (1, True)
    write_epochs(files, Path("/data"), {Path("/data"): epochs})
    assert not epochs.is_dirty
