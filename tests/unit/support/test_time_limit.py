"""A test that hangs fails in time, and shows where every thread and every task is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
LIMIT_S = 2
# A hang of the inner run ends this test as well.
RUN_TIMEOUT_S = 120


def run(tmp_path: Path, code: str, *options: str) -> subprocess.CompletedProcess[str]:
    """What pytest says about a file with ``code``, with the plugin of this suite and without those installed."""
    (tmp_path / "test_inner.py").write_text(code)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-p", "tests.support.time_limit"]
    return subprocess.run(
        [*command, "-p", "no:cacheprovider", f"--time-limit={LIMIT_S}", *options, "test_inner.py"],
        cwd=tmp_path,
        env=os.environ
        | {
            "PYTHONPATH": str(ROOT),
            "PYTEST_ADDOPTS": "",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTEST_PLUGINS": "",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_TIMEOUT_S,
    )


IN_A_WAIT = """
import asyncio, threading

async def never_set(event):
    await event.wait()

async def main():
    await asyncio.create_task(never_set(asyncio.Event()), name="the one that waits")

def test_hangs():
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait, name="a second thread", daemon=True)
    thread.start()
    try:
        asyncio.run(main())
    finally:
        stop.set()

def test_after_it():
    pass
"""

IN_CALLBACKS = """
import asyncio

def spin(loop):
    # Asyncio ends no more than this callback, whatever is raised in it.
    for _ in range(500_000):
        pass
    loop.call_soon(spin, loop)

async def main():
    loop = asyncio.get_running_loop()
    for _ in range(2):
        loop.call_soon(spin, loop)
    await asyncio.Event().wait()

def test_hangs():
    asyncio.run(main())

def test_after_it():
    pass
"""

IN_SETUP = """
import threading, pytest

@pytest.fixture
def slow():
    threading.Event().wait()

def test_hangs(slow):
    pass

def test_after_it():
    pass
"""


@pytest.mark.every(2)
@pytest.mark.parametrize("code", [IN_CALLBACKS, IN_SETUP], ids=["callbacks", "setup"])
def test_a_test_that_hangs_fails_and_the_next_one_runs(tmp_path: Path, code: str) -> None:
    done = run(tmp_path, code)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"the test exceeded its time limit of {LIMIT_S} s" in done.stdout
    assert "── thread MainThread ──" in done.stdout
    assert "1 passed" in done.stdout


def test_the_stacks_of_other_threads_and_of_tasks_are_in_the_report(tmp_path: Path) -> None:
    report = run(tmp_path, IN_A_WAIT).stdout
    assert "1 passed" in report, "the next test runs"
    assert "── thread a second thread ──" in report
    waiting = report.partition("── task the one that waits ──")[2]
    assert "await event.wait()" in waiting
    assert "in wait" in waiting, "what that awaits in turn"


def test_a_test_may_have_a_limit_of_its_own_or_none(tmp_path: Path) -> None:
    code = """
import pytest, threading

@pytest.mark.time_limit(0)
def test_without():
    threading.Event().wait(3)

@pytest.mark.time_limit(60)
def test_with_more():
    threading.Event().wait(3)
"""
    assert "2 passed" in run(tmp_path, code).stdout


@pytest.mark.long
def test_under_parallel_processes_the_report_is_the_same(tmp_path: Path) -> None:
    report = run(tmp_path, IN_A_WAIT, "-p", "xdist", "-n2").stdout
    assert "── task the one that waits ──" in report
    assert "1 failed, 1 passed" in report
