"""Tests in several processes: each file in one of them, and a process that ends is one failed test."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.inner_pytest import run_pytest

ALONE = """
import os

PIDS = []

def test_first(tmp_path):
    PIDS.append(os.getpid())
    assert tmp_path.parent.name.startswith("process-")

def test_second():
    assert PIDS == [os.getpid()]
"""
FAILS = """
import atexit, os, threading, warnings

from pathlib import Path

def test_fails(tmp_path):
    print("what the test has said")
    warnings.warn("what it warns of")
    end = Path(tmp_path.parents[1] / "ended")
    atexit.register(end.touch)
    assert 1 == 2
"""
ENDS = """
import os

def test_before_it():
    pass

def test_ends():
    os._exit(3)

def test_after_it():
    pass
"""
HANGS = """
import threading

def test_hangs():
    threading.Event().wait()
"""


def run(folder: Path, *options: str, **files: str) -> subprocess.CompletedProcess[str]:
    parallel = ("-p", "tests.support.parallel", "--processes=2", "--basetemp", str(folder / "temporary"))
    return run_pytest(folder, *parallel, *options, **files)


def test_the_tests_of_a_file_run_in_one_process_and_failures_are_reported(tmp_path: Path) -> None:
    done = run(tmp_path, test_a=ALONE, test_b=FAILS, test_c=ALONE)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 failed, 4 passed, 1 warning" in done.stdout
    for shown in ("assert 1 == 2", "what the test has said", "UserWarning: what it warns of"):
        assert done.stdout.count(shown) >= 1, done.stdout
    assert (tmp_path / "temporary" / "ended").exists()


def test_a_process_that_ends_fails_its_test_and_the_others_run(tmp_path: Path) -> None:
    done = run(tmp_path, test_a=ENDS, test_b=ALONE)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 failed, 4 passed" in done.stdout
    assert "FAILED test_a.py::test_ends - the process of this test ended with 3" in done.stdout


def test_a_test_that_hangs_fails_and_the_others_run(tmp_path: Path) -> None:
    limit = ("-p", "tests.support.time_limit", "--time-limit=1")
    done = run(tmp_path, *limit, test_a=HANGS, test_b=ALONE)
    assert "the test exceeded its time limit of 1 s" in done.stdout, done.stdout + done.stderr
    assert "── thread MainThread ──" in done.stdout
    assert "1 failed, 2 passed" in done.stdout


def test_a_run_ends_at_the_first_failure_if_it_is_told_so(tmp_path: Path) -> None:
    done = run(tmp_path, "-x", test_a=FAILS, **{f"test_{number}": ALONE for number in range(20)})
    assert done.returncode == 1, done.stdout + done.stderr
    assert "stopping after 1 failures" in done.stdout
    assert "42 passed" not in done.stdout
