"""The progress lines of commands, on a terminal and elsewhere."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from stele.commands.terminal import progress as module
from stele.commands.terminal.progress import ByteProgress, Progress, StatementProgress

# Not followed by its escape sequence: click leaves those out, because the output of a test is no terminal.
CLEAR = "\r"


class Clock:
    """Stands for ``time``; tests set ``now_s``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now_s))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Return the clock of a terminal."""
    monkeypatch.setattr(module, "sys", SimpleNamespace(stderr=SimpleNamespace(isatty=lambda: True)))
    return Clock(monkeypatch)


@pytest.mark.parametrize(
    ("total", "line"),
    [(400, f"[{'█' * 15}{'·' * 15}]  50%  2 records  1/s"), (None, "2 records  1/s")],
)
def test_records_are_shown_with_a_bar_if_their_size_is_known(
    clock: Clock, capsys: pytest.CaptureFixture[str], total: int | None, line: str
) -> None:
    with Progress(total) as progress:
        progress.advance(100)
        clock.now_s += 2
        progress.advance(100)
        # Not again so soon.
        progress.advance(100)
    assert capsys.readouterr().err == f"{CLEAR}{line}{CLEAR}"


def test_bytes_are_shown_with_their_share_and_rate(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with ByteProgress() as progress:
        progress.show(0, 4_000_000)
        clock.now_s += 2
        progress.show(3_000_000, 4_000_000)
        progress.show(4_000_000, 4_000_000)
        clock.now_s += 2
        progress.show(0, 0)
    shown = [f"[{'█' * 22}{'·' * 8}]  75%  3 MB  2 MB/s", f"[{'█' * 30}] 100%  0 MB  0 MB/s"]
    assert capsys.readouterr().err == CLEAR + CLEAR.join(shown) + CLEAR


def test_nothing_is_shown_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock(monkeypatch)
    with Progress(1) as records, ByteProgress() as progress:
        clock.now_s += 2
        records.advance(1)
        progress.show(1, 1)
    assert capsys.readouterr().err == ""


def test_the_progress_of_a_statement_is_read_from_its_lines(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with StatementProgress() as progress:
        clock.now_s += 1
        progress.watch(b'{"progress":{"offsets":250,"of":1000,')
        progress.watch(b'"bytes":3000000}}\n{"columns":[]}\n{"rows')
        clock.now_s += 1
        progress.watch(b'":[["progress"]]}\n{"progress":{"offsets":0,"of":0,"bytes":5000000}}\n')
    first, second, last = capsys.readouterr().err.split(CLEAR)[1:]
    assert first.endswith("]  25%  250 of 1,000 offsets  3 MB read")
    assert (second, last) == ("5 MB read", "")
