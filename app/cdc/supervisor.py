"""Runs ``stele cdc`` beside the broker, and again when it ended, for as long as the broker runs.

A process of its own (ADR-0016): decoding the changes of a busy database takes a core, and
the broker's event loop has none to spare. It writes through the binary listener like any other
producer, and says on its standard output how it is, one JSON object a line. Its standard
input is held open: when the broker is gone, whatever way, it ends too.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from contextlib import suppress
from typing import Any, cast

from prometheus_client.registry import Collector

from ..settings import Settings
from .metrics import CdcCollector

logger = logging.getLogger(__name__)

_PAUSE_FIRST_S = 1.0
_PAUSE_MAX_S = 30.0
# A line of status is some hundred bytes for each table.
_LINE_BYTES_MAX = 1024 * 1024
# Settings that are options of ``stele cdc``, which reads them from the same variables.
_OPTIONS = (
    "tables",
    "channels",
    "slot",
    "publication",
    "prefix",
    "notify_prefix",
    "partitions",
    "storage",
    "key_column",
    "snapshot",
)


class CdcSupervisor:
    """One connector, if the settings have a DSN."""

    def __init__(self, settings: Settings, broker_url: str) -> None:
        self._settings = settings
        self._dsn = "" if settings.cdc_dsn is None else settings.cdc_dsn.get_secret_value()
        self._url = broker_url
        self._status: dict[str, Any] = {"slot": settings.cdc_slot, "state": "starting"}
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._restarts = 0
        self._is_closing = False

    @property
    def is_wanted(self) -> bool:
        return bool(self._dsn)

    @property
    def collector(self) -> Collector:
        return CdcCollector(self.connectors)

    def start(self) -> None:
        """Begin, when the listeners are open."""
        if self.is_wanted:
            self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Let it store and confirm what it has read; kill it if that takes too long."""
        self._is_closing = True
        process = self._process
        if process is not None and process.stdin is not None:
            process.stdin.close()
            try:
                await asyncio.wait_for(process.wait(), self._settings.shutdown_timeout_ms / 1000)
            except TimeoutError:
                logger.warning("the connector did not end in time, and is killed")
                process.kill()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def connectors(self) -> list[dict[str, Any]]:
        """What each says of itself, as ``GET /v1/cdc`` shows it."""
        if not self.is_wanted:
            return []
        return [{**self._status, "restarts": self._restarts}]

    async def _run(self) -> None:
        pause_s = _PAUSE_FIRST_S
        while not self._is_closing:
            try:
                code, had_streamed = await self._run_once()
            except (OSError, ValueError) as error:
                # No process could be made, or a line that has no end.
                code, had_streamed = -1, False
                self._status = {**self._status, "state": "failed", "last_error": str(error)}
            if self._is_closing:
                return
            pause_s = _PAUSE_FIRST_S if had_streamed else min(pause_s * 2, _PAUSE_MAX_S)
            logger.warning("the connector ended with code %d, and is started again in %.0f s", code, pause_s)
            await asyncio.sleep(pause_s)
            self._restarts += 1

    async def _run_once(self) -> tuple[int, bool]:
        """The exit code, and whether it had come as far as the stream."""
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
        had_streamed = False
        try:
            async for line in process.stdout:
                # The last line of one that was killed may be cut.
                with suppress(ValueError):
                    self._status = cast("dict[str, Any]", json.loads(line))
                    had_streamed = had_streamed or self._status["state"] == "streaming"
            code = await process.wait()
            if code:
                error = self._status.get("last_error") if self._status["state"] == "failed" else None
                self._status = {
                    **self._status,
                    "state": "failed",
                    "last_error": error or f"it ended with code {code}; the broker's log says more",
                }
            return code, had_streamed
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
            self._process = None

    def _environment(self) -> dict[str, str]:
        settings = self._settings
        given = {f"STELE_CDC_{name.upper()}": str(getattr(settings, f"cdc_{name}")) for name in _OPTIONS}
        given["STELE_CDC_TOMBSTONES"] = "1" if settings.cdc_tombstones else "0"
        # Not an argument: those can be seen by everybody on the machine.
        given["STELE_CDC_DSN"] = self._dsn
        given["STELE_CDC_BROKER"] = self._url
        return {**os.environ, **given}
