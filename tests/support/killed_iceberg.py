"""An Iceberg writer that is killed at a given step: before and after each file, statement and commit."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import Engine
from stele.iceberg import files, topic
from stele.testing import BrokerProcess

from .iceberg import writing

_processes = multiprocessing.get_context("forkserver")
# Each run is forked from a process that has imported what takes seconds.
_processes.set_forkserver_preload(["tests.support.killed_iceberg"])


def run_until(step: int, broker: BrokerProcess, directory: Path, name: str) -> bool:
    """Write a topic, and kill the process at its ``step``; return whether it came to that."""
    urls = broker.binary_url, broker.http_url, broker.registry_url
    process = _processes.Process(target=_run, args=(step, urls, directory, name))
    process.start()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL), process.exitcode
    return process.exitcode != 0


class _Urls:
    def __init__(self, binary_url: str, http_url: str, registry_url: str) -> None:
        self.binary_url, self.http_url, self.registry_url = binary_url, http_url, registry_url


def _run(step: int, urls: tuple[str, str, str], directory: Path, name: str) -> None:
    numbers = itertools.count(1)

    def pass_step(*_: Any, **__: Any) -> None:
        if next(numbers) == step:
            os.kill(os.getpid(), signal.SIGKILL)

    # Several turns, and several files of each.
    topic._TURN_BYTES = 20_000  # type: ignore[misc]
    stream: Any = files._SyncedStream
    begin, end = stream.__init__, stream.close

    def begin_file(self: Any, path: Path) -> None:
        pass_step()
        begin(self, path)

    def end_file(self: Any) -> None:
        pass_step()
        end(self)
        pass_step()

    stream.__init__, stream.close = begin_file, end_file
    event.listen(Engine, "before_cursor_execute", pass_step)
    event.listen(Engine, "commit", pass_step)
    event.listen(Engine, "checkin", pass_step)
    broker: Any = _Urls(*urls)
    with writing(broker, directory) as tables:
        tables.write(name)
