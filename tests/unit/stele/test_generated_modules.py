"""The blocking modules are those that ``clients/python/unasync.py`` makes of the asyncio ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import unasync

# The same is done in other ways by tasks and by threads, so both modules are written by hand.
_BY_HAND = {
    "async_concurrency.py",
    "consuming/async_fetching.py",
    "producing/async_sending.py",
    "transport/async_tcp.py",
}


def check(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, unasync.__file__, *arguments], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("source", unasync.SOURCES)
def test_a_blocking_module_is_what_its_asyncio_module_makes(source: str) -> None:
    assert unasync.difference(source) == "", "edit the asyncio module, then run `make format`"
    first, second, *_ = unasync.target_of(source).read_text().splitlines()
    assert f"Generated from {Path(source).name}" in first
    assert "make format" in first
    assert second.startswith('"""')


def test_each_asyncio_module_is_a_source_or_known_to_be_written_twice() -> None:
    present = {str(path.relative_to(unasync.PACKAGE)) for path in unasync.PACKAGE.rglob("async_*.py")}
    assert present == {*unasync.SOURCES, *_BY_HAND}
    assert set(unasync.PHRASES) <= set(unasync.SOURCES)


def package_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> Path:
    """A package whose single source is ``async_client.py``."""
    monkeypatch.setattr(unasync, "ROOT", tmp_path)
    monkeypatch.setattr(unasync, "PACKAGE", tmp_path)
    monkeypatch.setattr(unasync, "SOURCES", ("async_client.py",))
    monkeypatch.setattr(unasync, "PHRASES", {"async_client.py": (("tasks", "threads"),)})
    (tmp_path / "ruff.toml").write_text('lint.select = ["F", "I"]')
    (tmp_path / "async_client.py").write_text(text)
    return tmp_path / "client.py"


_SOURCE = '''"""Serves any number of tasks, in an ``async with`` block."""

from .async_concurrency import sleep, AsyncWorker
from .a import AsyncIterator


class AsyncThing:
    async def __aenter__(self) -> AsyncIterator[int]:
        await sleep(await self.pause())
        return AsyncIterator(AsyncWorker)
'''

_MADE = '''"""Serves any number of threads, in a ``with`` block."""

from .a import Iterator
from .concurrency import Worker, sleep


class Thing:
    def __enter__(self) -> Iterator[int]:
        sleep(self.pause())
        return Iterator(Worker)
'''


def test_nothing_of_asyncio_is_left_in_code_imports_and_docstrings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = package_with(tmp_path, monkeypatch, _SOURCE)
    monkeypatch.setattr(sys, "argv", ["unasync.py"])
    unasync.main()
    _, text = made.read_text().split("\n", 1)
    assert text == _MADE
    monkeypatch.setattr(sys, "argv", ["unasync.py", "--check"])
    unasync.main()


def test_a_change_of_a_blocking_module_by_hand_is_shown_with_the_way_to_undo_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = package_with(tmp_path, monkeypatch, _SOURCE)
    monkeypatch.setattr(sys, "argv", ["unasync.py"])
    unasync.main()
    made.write_text(made.read_text().replace("sleep(", "pause("))
    monkeypatch.setattr(sys, "argv", ["unasync.py", "--check"])
    with pytest.raises(SystemExit, match=r"(?s)-        pause\(.*\+        sleep\(.*run `make format`"):
        unasync.main()


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("import asyncio", "async"),
        ("# Waits for the event loop.", "event loop"),
        ("# Of these tasks, one is the task.", "task"),
        ("# (await)", "await"),
    ],
)
def test_what_no_rule_covers_is_refused_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, left: str
) -> None:
    package_with(tmp_path, monkeypatch, f"{_SOURCE}\n\n{line}\n")
    with pytest.raises(ValueError, match=rf"async_client\.py:13: '{left}' is left"):
        unasync.generate("async_client.py")


def test_a_phrase_that_is_not_there_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package_with(tmp_path, monkeypatch, _SOURCE.replace("tasks", "things"))
    with pytest.raises(ValueError, match="remove the phrase 'tasks'"):
        unasync.generate("async_client.py")


def test_what_ruff_cannot_mend_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package_with(tmp_path, monkeypatch, _SOURCE + "\n\nwrong = unknown_name\n")
    with pytest.raises(ValueError, match=r"client\.py, as generated, does not pass ruff"):
        unasync.generate("async_client.py")


def test_an_unknown_argument_changes_nothing() -> None:
    done = check("--chek")
    assert done.returncode != 0
    assert "usage" in done.stderr
