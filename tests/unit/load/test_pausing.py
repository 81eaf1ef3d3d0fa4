"""A process that is paused does nothing until it is resumed."""

from __future__ import annotations

import mmap
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from load.pausing import pause, paused
from tests.support.waiting import eventually

THREADS = 4
# Each thread counts in eight bytes of a file; hashing runs without the GIL, so that they count at the same time.
COUNTING = f"""
import hashlib, mmap, struct, sys, threading

with open(sys.argv[1], "r+b") as file:
    counts = mmap.mmap(file.fileno(), 0)

def count(at):
    for number in range(1, 1 << 62):
        hashlib.sha256(bytes(65536))
        counts[at:at + 8] = struct.pack("<q", number)

for index in range({THREADS}):
    threading.Thread(target=count, args=(8 * index,)).start()
"""


@pytest.fixture
def counting(tmp_path: Path) -> Iterator[tuple[int, mmap.mmap]]:
    """A process, and the numbers to which its threads count."""
    path = tmp_path / "counts"
    path.write_bytes(bytes(8 * THREADS))
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as counts:
        process = subprocess.Popen([sys.executable, "-c", COUNTING, str(path)])
        try:
            eventually(lambda: all(numbers(counts)), "every thread counts")
            yield process.pid, counts
        finally:
            process.kill()
            process.wait()


def numbers(counts: mmap.mmap) -> list[int]:
    return list(memoryview(counts[:]).cast("q"))


def test_a_paused_process_stands_still_and_then_continues(counting: tuple[int, mmap.mmap]) -> None:
    pid, counts = counting
    for _ in range(50):
        with paused(pid):
            before = numbers(counts)
            for _ in range(1000):
                assert numbers(counts) == before
        eventually(lambda before=before: numbers(counts) != before, "it counts again")


def test_a_process_that_has_ended_stands_still() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        # Nobody has waited for it, so that its id is still taken.
        eventually(lambda: state_of(process.pid) == "Z", "it has ended")
        pause(process.pid)


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_pausing_an_unknown_process_is_refused() -> None:
    unused = int(Path("/proc/sys/kernel/pid_max").read_text()) + 1
    with pytest.raises(ProcessLookupError):
        pause(unused)
