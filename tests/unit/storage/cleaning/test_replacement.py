"""A crash at each call of a replacement: the old contents or the new ones, never a mix."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from app.errors import CorruptLog
from app.storage.cleaning.cleaned_segment import read_batches
from app.storage.cleaning.replacement import Replacement, recover_replacement
from app.storage.disk.whole_files import write_file
from tests.support.compaction import CleanedPartition, Keyed, Stored, batch, compacted
from tests.support.simulated_files import SimulatedFiles

pytestmark = pytest.mark.usefixtures("without_logs")

DIRECTORY = Path("/orders-0")
# Logs and cleaned logs are far below 512 bytes, so a lost sector is a lost file; several seeds for each call.
SEEDS = 5


def partition_on(files: SimulatedFiles) -> CleanedPartition[SimulatedFiles]:
    """Four segments that are synced; the first three fit into one, the last one is rewritten alone."""
    files.make_dir(DIRECTORY)
    files.sync_dir(Path("/"))
    partition = CleanedPartition(files, DIRECTORY)
    segments: list[list[bytes]] = []
    offset = 0
    for keys in ("ab", "bc", "ca", "zzzzzzzzz"):
        segments.append([])
        for key in keys:
            value = b"%d" % offset * (20 if key == "z" else 10)
            segments[-1].append(batch([Keyed(key.encode(), value), Keyed(b"hot", value)], offset))
            offset += 2
    partition.write(segments)
    for base_offset in partition.base_offsets():
        write_file(files, DIRECTORY / f"{base_offset:020d}.producers", b"states")
    return partition


def found_in(files: SimulatedFiles) -> tuple[Stored, ...]:
    """What a start finds. The segments are adjacent and each index there is its own log's (``facts``)."""
    partition = CleanedPartition(files, DIRECTORY)
    facts = partition.facts()
    # A snapshot inside a segment would have to be followed from there on.
    snapshots = [int(n[:20]) for n in files.list_dir(DIRECTORY) if n.endswith(".producers")]
    assert set(snapshots) <= {segment.base_offset for segment in facts}
    names = files.list_dir(DIRECTORY)
    assert {name[20:] for name in names} <= {".log", ".index", ".timeindex", ".producers"}
    return tuple(partition.records())


def worlds(files: SimulatedFiles, seed: int) -> list[SimulatedFiles]:
    return [files.crash(Random(seed)), files.power_cut(Random(seed))]


def each_call(
    make: Callable[[], SimulatedFiles], run: Callable[[SimulatedFiles], object]
) -> Iterator[tuple[int, SimulatedFiles]]:
    """The disks that are found after ``run`` ended in the middle of each of its calls, and after the last."""
    counted = make()
    before = counted.calls
    run(counted)
    for call in range(1, counted.calls - before + 2):
        for seed in range(SEEDS):
            files = make()
            survivors: list[SimulatedFiles] = []

            def cut(
                files: SimulatedFiles = files,
                seed: int = seed,
                survivors: list[SimulatedFiles] = survivors,
            ) -> None:
                survivors.extend(worlds(files, seed))

            files.alarm(call, cut)
            run(files)
            for survivor in survivors or worlds(files, seed):
                yield call, survivor


def copy_of(files: SimulatedFiles) -> SimulatedFiles:
    return files.crash(Random(0))


class TestCrashes:
    @pytest.mark.long
    def test_in_a_pass_leave_the_last_record_of_each_key_and_nothing_half_done(self) -> None:
        template = SimulatedFiles()
        before = tuple(partition_on(template).records())
        after = tuple(compacted(before))
        # The pass has two groups; a crash may find the first one replaced and the second one not.
        reference = copy_of(template)
        CleanedPartition(reference, DIRECTORY).clean()
        group_end = CleanedPartition(reference, DIRECTORY).base_offsets()[1]
        between = tuple(
            [r for r in after if r.offset < group_end] + [r for r in before if r.offset >= group_end]
        )
        seen: set[tuple[Stored, ...]] = set()
        for call, survivor in each_call(
            lambda: copy_of(template), lambda files: CleanedPartition(files, DIRECTORY).clean()
        ):
            recover_replacement(survivor, DIRECTORY)
            found = found_in(survivor)
            assert found in (before, between, after), call
            seen.add(found)
        assert seen == {before, between, after}

    @pytest.mark.parametrize("steps", [1, 2, 3])
    def test_in_the_recovery_leave_the_same_work_for_the_next_one(self, steps: int) -> None:
        files = SimulatedFiles()
        before = partition_on(files).records()
        replaced_up_to(files, steps)
        reference = copy_of(files)
        assert recover_replacement(reference, DIRECTORY) == (steps < 3)
        group_end = CleanedPartition(reference, DIRECTORY).base_offsets()[1]
        after = [r for r in compacted(before) if r.offset < group_end]
        after += [r for r in before if r.offset >= group_end]
        for call, survivor in each_call(
            lambda: copy_of(files), lambda files: recover_replacement(files, DIRECTORY)
        ):
            recover_replacement(survivor, DIRECTORY)
            assert found_in(survivor) == tuple(after), call
            assert not recover_replacement(survivor, DIRECTORY)


class StopHere(Exception):
    """The process ends between two steps."""


def replaced_up_to(files: SimulatedFiles, steps: int) -> Replacement:
    """Run a pass up to the first ``steps`` of commit, retire and install of its first group."""
    stopped: list[Replacement] = []

    def replace(replacement: Replacement) -> None:
        replacement.open()
        for step in (replacement.commit, replacement.retire, replacement.install)[:steps]:
            step()
        replacement.close()
        stopped.append(replacement)
        raise StopHere

    with pytest.raises(StopHere):
        CleanedPartition(files, DIRECTORY).clean(replace=replace)
    return stopped[0]


class TestReaders:
    def test_one_with_the_old_path_finds_the_old_bytes_until_they_are_discarded(self) -> None:
        files = SimulatedFiles()
        partition = partition_on(files)
        old = {DIRECTORY / f"{base:020d}.log": partition.log(base) for base in partition.base_offsets()[:3]}
        stopped: list[Replacement] = []
        moved: dict[Path, Path] = {}

        def replace(replacement: Replacement) -> None:
            replacement.open()
            replacement.commit()
            moved.update(replacement.retire())
            assert not any(map(files.exists, old)), "no name means two things"
            replacement.install()
            stopped.append(replacement)
            raise StopHere

        with pytest.raises(StopHere):
            partition.clean(replace=replace)
        assert {path: bytes(files.content(moved[path])) for path in old} == old
        stopped[0].discard()
        assert not any(map(files.exists, moved.values()))

    def test_files_that_were_retired_twice_have_two_names(self) -> None:
        files = SimulatedFiles()
        partition_on(files)
        replaced_up_to(files, 3)
        retired = [name for name in files.list_dir(DIRECTORY) if name.endswith(".deleted")]
        # The next pass merges nothing of the first group; rewrite it as if it did.
        for suffix in (".log", ".index", ".timeindex"):
            name = f"{0:020d}{suffix}"
            write_file(files, DIRECTORY / (name + ".cleaned"), bytes(files.content(DIRECTORY / name)))
        replacement = Replacement(files, DIRECTORY, [0])
        replacement.open()
        replacement.commit()
        replacement.retire()
        assert set(retired) < set(files.list_dir(DIRECTORY))


class TestDamagedSwapFile:
    def test_before_the_old_log_was_retired_it_stands(self) -> None:
        files = SimulatedFiles()
        before = partition_on(files).records()
        replaced_up_to(files, 1)
        damage(files)
        assert not recover_replacement(files, DIRECTORY)
        assert found_in(files) == tuple(before)

    def test_afterwards_it_is_what_there_is_and_its_damage_is_found_as_any_other(self) -> None:
        files = SimulatedFiles()
        partition_on(files)
        replaced_up_to(files, 2)
        damage(files)
        assert recover_replacement(files, DIRECTORY)
        assert not any(path.suffix == ".swap" for path in files.paths())
        file = files.open(DIRECTORY / f"{0:020d}.log")
        with pytest.raises(CorruptLog):
            list(read_batches(file, base_offset=0))
        file.close()


def damage(files: SimulatedFiles) -> None:
    path = DIRECTORY / f"{0:020d}.log.swap"
    content = bytearray(files.content(path))
    content[len(content) // 2] ^= 1
    files.damage(path, bytes(content))


def test_a_directory_without_replacements_is_left_alone() -> None:
    files = SimulatedFiles()
    partition_on(files)
    before = {path: bytes(files.content(path)) for path in files.paths()}
    writes = files.counts["sync_dir"], files.counts["rename"], files.counts["remove"]
    assert not recover_replacement(files, DIRECTORY)
    assert {path: bytes(files.content(path)) for path in files.paths()} == before
    assert (files.counts["sync_dir"], files.counts["rename"], files.counts["remove"]) == writes
