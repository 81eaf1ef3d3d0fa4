"""Processes that run SQL statements, one at a time each.

A process is started for a statement, and kept for the next one. It is killed when its statement must not go on, or has
left it large: whatever a statement does, nothing else ends it as surely.
"""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Self

from stele.wire import sql_frames as frames

_MODULE = "stele.sql.start"
_BUFFER_BYTES = 512 * 1024
# Nothing of the broker's environment, where secrets are, but what Python needs to find its modules.
_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "TMPDIR")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def is_installed() -> bool:
    """Return whether the extra ``sql`` is installed; nothing of it is imported into the broker."""
    return all(find_spec(name) is not None for name in ("duckdb", "pyarrow"))


class SqlProcess:
    """One process, between ``started`` and ``kill``."""

    def __init__(self, process: Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._stdin = process.stdin
        self._stdout = process.stdout

    @classmethod
    async def started(cls, *, memory_bytes: int, threads: int) -> Self:
        """Raises ``OSError``."""
        variables = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            _MODULE,
            str(memory_bytes),
            str(threads),
            stdin=PIPE,
            stdout=PIPE,
            env=variables,
            limit=_BUFFER_BYTES,
            start_new_session=True,
        )
        return cls(process)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def resident_bytes(self) -> int:
        """The memory of the process; 0 where the system does not tell."""
        try:
            return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * _PAGE_BYTES
        except (OSError, IndexError):
            return 0

    @property
    def has_ended(self) -> bool:
        """Whether it was killed, by the system or a person; the event loop may not have noticed."""
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    async def send(self, frame: frames.ToProcess) -> None:
        """Send a frame; it is lost if the process has ended, as ``receive`` shows."""
        with suppress(ConnectionError):
            self._stdin.write(frames.encode(frame))
            await self._stdin.drain()

    async def receive(self) -> frames.ToBroker | None:
        """Wait for a frame; None if the process has ended."""
        try:
            length = frames.LENGTH.unpack(await self._stdout.readexactly(frames.LENGTH.size))[0]
            if length > frames.FRAME_BYTES_MAX:
                return None
            return frames.decode_to_broker(await self._stdout.readexactly(length))
        except (asyncio.IncompleteReadError, ConnectionError, ValueError):
            return None

    async def kill(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        self._stdin.close()
        await self._process.wait()


class SqlProcesses:
    """All processes; those without a statement wait for one."""

    def __init__(self, *, memory_bytes: int, threads: int) -> None:
        self._memory_bytes = memory_bytes
        self._threads = threads
        self._all: set[SqlProcess] = set()
        self._idle: list[SqlProcess] = []
        self._is_closed = False

    @property
    def count(self) -> int:
        return len(self._all)

    async def take(self) -> SqlProcess:
        """Return a process that waits for a statement; the caller has it until ``give_back``. Raises ``OSError``."""
        while self._idle:
            process = self._idle.pop()
            if not process.has_ended:
                return process
            self._all.discard(process)
            await process.kill()
        process = await SqlProcess.started(memory_bytes=self._memory_bytes, threads=self._threads)
        self._all.add(process)
        return process

    async def give_back(self, process: SqlProcess, *, is_done: bool) -> None:
        """Keep a process that ``is_done`` with its statement, unless it has become large; kill it otherwise."""
        if is_done and not self._is_closed and process.resident_bytes < self._memory_bytes // 2:
            self._idle.append(process)
            return
        self._all.discard(process)
        await process.kill()

    async def close(self) -> None:
        """Kill all processes; their statements end."""
        self._is_closed = True
        processes, self._idle = list(self._all), []
        self._all.clear()
        await asyncio.gather(*(process.kill() for process in processes))
