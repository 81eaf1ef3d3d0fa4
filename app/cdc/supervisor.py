"""Runs ``stele cdc`` beside the broker, and restarts it whenever it ends.

In a cluster, the broker with the connector's lease runs it.

The connector is a process of its own (ADR-0016), because decoding the changes of a busy
database takes a core, and the broker's event loop has none to spare. It writes through the
binary listener like any other producer, and reports its status on standard output, one JSON
object per line. The broker holds its standard input open, so that the connector ends when
the broker ends, even after a crash.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

from prometheus_client.registry import Collector
from pydantic import SecretStr

from ..settings import Settings
from .metrics import CdcCollector

logger = logging.getLogger(__name__)

_PAUSE_FIRST_S = 1.0
_PAUSE_MAX_S = 30.0
# A connector that runs by lease hears so often in a session timeout of the broker that it has it.
_BEATS = 5
# A status line takes some hundred bytes per table.
_LINE_BYTES_MAX = 1024 * 1024
# Logins and registry of commands in the same shell; the connector has its own.
_LOGIN_VARIABLES = (
    "STELE_REGISTRY_URL",
    "STELE_USER",
    "STELE_PASSWORD",
    "STELE_PASSWORD_FILE",
    "STELE_API_KEY",
    "STELE_API_KEY_FILE",
)


class CdcSupervisor:
    """Supervises one connector, if the settings have a DSN.

    ``start`` runs it until ``close``. With several brokers it implements ``LeaseWork`` instead.
    """

    def __init__(
        self, settings: Settings, broker_url: str, api_key: str = "", registry_url: str = ""
    ) -> None:
        """``api_key`` logs the connector in to the broker and its registry; empty without logins."""
        self._api_key = api_key
        self._registry_url = registry_url
        self._settings = settings
        self._cdc = settings.cdc
        self._url = broker_url
        self._status: dict[str, Any] = {"slot": self._cdc.slot, "state": "starting"}
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._restarts = 0
        self._is_closing = False
        self._is_held: Callable[[], bool] | None = None

    @property
    def is_wanted(self) -> bool:
        return bool(_text(self._cdc.dsn))

    @property
    def lease(self) -> str:
        """The lease of this connector; it is the same one at every broker."""
        return f"cdc.{self._cdc.prefix}.{self._cdc.slot}"

    @property
    def collector(self) -> Collector:
        return CdcCollector(self.connectors)

    def start(self) -> None:
        """Start the connector; call this once the listeners are open."""
        if self.is_wanted:
            self._task = asyncio.create_task(self._run())

    def run_by_lease(self, is_held: Callable[[], bool]) -> None:
        """Run the connector between ``begin`` and ``end``, not from ``start`` on.

        ``is_held`` says whether this broker certainly has the lease.
        """
        self._is_held = is_held
        self._stand_by()

    def _stand_by(self) -> None:
        self._status = {"slot": self._cdc.slot, "state": "standby"}

    async def begin(self, epoch: int) -> None:
        """Start the connector, because this broker has the lease."""
        logger.info("running the CDC connector, epoch %d of the lease %s", epoch, self.lease)
        self._status = {"slot": self._cdc.slot, "state": "starting"}
        self._task = asyncio.create_task(self._run())

    async def end(self) -> None:
        """Kill the connector, because the lease is lost or about to be given back.

        Another broker may have the lease in half a second, so it gets no time to finish. What it has stored
        and not confirmed, PostgreSQL sends again, and the next connector recognizes it.
        """
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._stand_by()

    async def close(self) -> None:
        """Let the connector store and confirm what it has read; kill it after a timeout."""
        self._is_closing = True
        process = self._process
        if process is not None and process.stdin is not None:
            process.stdin.close()
            try:
                await asyncio.wait_for(process.wait(), self._settings.shutdown_timeout_ms / 1000)
            except TimeoutError:
                logger.warning(
                    "the CDC connector did not end within %d ms and is killed",
                    self._settings.shutdown_timeout_ms,
                )
                process.kill()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def connectors(self) -> list[dict[str, Any]]:
        """Return the status of each connector, as ``GET /v1/cdc`` shows it."""
        if not self.is_wanted:
            return []
        return [{**self._status, "restarts": self._restarts}]

    async def _run(self) -> None:
        pause_s = _PAUSE_FIRST_S
        while not self._is_closing:
            try:
                code, had_streamed = await self._run_once()
            except (OSError, ValueError) as error:
                # The process could not be started, or a line exceeded the limit.
                code, had_streamed = -1, False
                self._status = {**self._status, "state": "failed", "last_error": str(error)}
            if self._is_closing:
                return
            pause_s = _PAUSE_FIRST_S if had_streamed else min(pause_s * 2, _PAUSE_MAX_S)
            logger.warning("the CDC connector ended with code %d; it restarts in %.0f s", code, pause_s)
            await asyncio.sleep(pause_s)
            self._restarts += 1

    async def _run_once(self) -> tuple[int, bool]:
        """Run the connector; return its exit code and whether it reached streaming."""
        process = self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "stele.cli",
            "cdc",
            "--supervised",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=self._environment(),
            limit=_LINE_BYTES_MAX,
            start_new_session=True,
        )
        assert process.stdout is not None
        assert process.stdin is not None
        beats = asyncio.create_task(self._beat(process.stdin))
        had_streamed = False
        try:
            async for line in process.stdout:
                # The last line of a killed process may be incomplete.
                with suppress(ValueError):
                    self._status = cast("dict[str, Any]", json.loads(line))
                    had_streamed = had_streamed or self._status["state"] == "streaming"
            code = await process.wait()
            if code:
                error = self._status.get("last_error") if self._status["state"] == "failed" else None
                self._status = {
                    **self._status,
                    "state": "failed",
                    "last_error": error or f"the connector ended with code {code}; see the broker's log",
                }
            return code, had_streamed
        finally:
            beats.cancel()
            if process.returncode is None:
                process.kill()
                await process.wait()
            self._process = None

    async def _beat(self, stdin: asyncio.StreamWriter) -> None:
        """Tell the connector that it may go on, unless this process is paused."""
        while self._is_held is not None and not stdin.is_closing():
            if self._is_held():
                stdin.write(b"\n")
            await asyncio.sleep(self._silence_s / _BEATS)

    @property
    def _silence_s(self) -> float:
        """After how long a silence the connector ends: by then another broker may have the lease."""
        return self._settings.broker_session_timeout_ms / 1000

    def _environment(self) -> dict[str, str]:
        # Not as arguments, because every user of the machine can see those.
        given = {f"STELE_CDC_{name.upper()}": _text(value) for name, value in self._cdc}
        if self._is_held is not None:
            given["STELE_CDC_SILENCE"] = str(self._silence_s)
        given["STELE_CDC_BROKER"] = self._url
        given["STELE_CDC_REGISTRY"] = self._registry_url
        inherited = {name: value for name, value in os.environ.items() if name not in _LOGIN_VARIABLES}
        return {**inherited, **given, **({"STELE_API_KEY": self._api_key} if self._api_key else {})}


def _text(value: object) -> str:
    """Return the value of an option as a variable of the environment."""
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return "" if value is None else str(value)
