"""Runs a command of ``stele`` beside the broker, and restarts it whenever it ends.

Such a command is a process of its own because its work takes a core, and the event loop has none to spare. It is a
client of the listeners like any other. It reports its status on standard output, one JSON object per line. The broker
holds its standard input open, so that it ends when the broker ends, even after a crash.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

logger = logging.getLogger(__name__)

_PAUSE_FIRST_S = 1.0
_PAUSE_MAX_S = 30.0
# A process that runs by lease hears so often in its silence that the broker has the lease.
_BEATS = 5
# States of a process that has said why it ends; a connector of PostgreSQL may end with the latter.
_ENDED = ("failed", "gap")
_LINE_BYTES_MAX = 1024 * 1024
# Logins and registry of commands in the same shell; the process has its own.
_LOGIN_VARIABLES = (
    "STELE_REGISTRY_URL",
    "STELE_USER",
    "STELE_PASSWORD",
    "STELE_PASSWORD_FILE",
    "STELE_API_KEY",
    "STELE_API_KEY_FILE",
)


class SupervisedProcess:
    """One command, between ``start`` and ``kill`` or ``close``."""

    def __init__(
        self,
        what: str,
        arguments: Sequence[str],
        variables: Callable[[], Mapping[str, str]],
        *,
        api_key: str,
        status: Mapping[str, Any],
        good_states: Collection[str],
        shutdown_timeout_ms: int,
    ) -> None:
        """``what`` it is, for logs. ``variables`` are added to the environment: every user of the machine sees arguments.

        ``api_key`` logs it in to the broker; empty without logins. ``status`` is shown until it reports one. After a run
        that has reached a state of ``good_states`` it restarts soon.
        """
        self.status: dict[str, Any] = dict(status)
        self.restarts = 0
        self._what = what
        self._arguments = arguments
        self._variables = variables
        self._api_key = api_key
        self._good_states = good_states
        self._shutdown_timeout_ms = shutdown_timeout_ms
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_closing = False
        self._may_go_on: Callable[[], bool] | None = None
        self._silence_s = 0.0

    def beat(self, may_go_on: Callable[[], bool], silence_s: float) -> None:
        """Send a line while ``may_go_on``.

        The process ends after ``silence_s`` without one: another broker may have the lease then.
        """
        self._may_go_on, self._silence_s = may_go_on, silence_s

    def start(self) -> None:
        self._is_closing = False
        self._task = asyncio.create_task(self._run())

    async def kill(self) -> None:
        """End it without giving it time."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def close(self, *, last_words: bytes = b"", more_ms: int = 0) -> None:
        """Let it finish what it has begun, after it was sent ``last_words``; kill it after a timeout.

        That is ``more_ms`` longer than for the shutdown of the broker.
        """
        self._is_closing = True
        process, timeout_ms = self._process, self._shutdown_timeout_ms + more_ms
        if self._task is not None and process is not None and process.stdin is not None:
            process.stdin.write(last_words)
            process.stdin.close()
            # Not only for the process: what it reports last counts, too.
            ended, _ = await asyncio.wait([self._task], timeout=timeout_ms / 1000)
            if not ended:
                logger.warning("%s did not end within %d ms and is killed", self._what, timeout_ms)
                process.kill()
        await self.kill()

    async def _run(self) -> None:
        pause_s = _PAUSE_FIRST_S
        while not self._is_closing:
            try:
                code, was_good = await self._run_once()
            except (OSError, ValueError) as error:
                # The process could not be started, or a line exceeded the limit.
                code, was_good = -1, False
                self.status = {**self.status, "state": "failed", "last_error": str(error)}
            if self._is_closing:
                return
            pause_s = _PAUSE_FIRST_S if was_good else min(pause_s * 2, _PAUSE_MAX_S)
            logger.warning("%s ended with code %d; it restarts in %.0f s", self._what, code, pause_s)
            await asyncio.sleep(pause_s)
            self.restarts += 1

    async def _run_once(self) -> tuple[int, bool]:
        """Run the command; return its exit code and whether it reached a good state."""
        inherited = {name: value for name, value in os.environ.items() if name not in _LOGIN_VARIABLES}
        process = self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "stele.cli",
            *self._arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**inherited, **self._own_variables(), **self._variables()},
            limit=_LINE_BYTES_MAX,
            start_new_session=True,
        )
        assert process.stdout is not None
        assert process.stdin is not None
        beats = asyncio.create_task(self._beat(process.stdin))
        was_good = False
        try:
            async for line in process.stdout:
                # The last line of a killed process may be incomplete.
                with suppress(ValueError):
                    self.status = cast("dict[str, Any]", json.loads(line))
                    was_good = was_good or self.status["state"] in self._good_states
            code = await process.wait()
            if code:
                state = self.status["state"]
                error = self.status.get("last_error") if state in _ENDED else None
                self.status = {
                    **self.status,
                    "state": state if error else "failed",
                    "last_error": error or f"{self._what} ended with code {code}; see the broker's log",
                }
            return code, was_good
        finally:
            beats.cancel()
            if process.returncode is None:
                process.kill()
                await process.wait()
            self._process = None

    def _own_variables(self) -> dict[str, str]:
        given = {"STELE_API_KEY": self._api_key} if self._api_key else {}
        return given if self._may_go_on is None else {**given, "STELE_LEASE_SILENCE": str(self._silence_s)}

    async def _beat(self, stdin: asyncio.StreamWriter) -> None:
        """Tell the process that it may go on, unless this one is paused."""
        while self._may_go_on is not None and not stdin.is_closing():
            if self._may_go_on():
                stdin.write(b"\n")
            await asyncio.sleep(self._silence_s / _BEATS)
