"""Runs ``stele cdc`` beside the broker (ADR-0016); in a cluster, at the broker with the connector's lease.

It writes through the binary listener like any other producer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from prometheus_client.registry import Collector
from pydantic import SecretStr

from ..settings import Settings
from ..supervised_process import SupervisedProcess
from .metrics import CdcCollector

logger = logging.getLogger(__name__)


class CdcSupervisor:
    """Supervises one connector, if the settings have a DSN.

    ``start`` runs it until ``close``. With several brokers it implements ``LeaseWork`` instead.
    """

    def __init__(
        self, settings: Settings, broker_url: str, api_key: str = "", registry_url: str = ""
    ) -> None:
        """``api_key`` logs the connector in to the broker and its registry; empty without logins."""
        self._registry_url = registry_url
        self._settings = settings
        self._cdc = settings.cdc
        self._url = broker_url
        self._process = SupervisedProcess(
            "the CDC connector",
            ("cdc", "--supervised"),
            self._variables,
            api_key=api_key,
            status={"slot": self._cdc.slot, "state": "starting"},
            good_states=("streaming",),
            shutdown_timeout_ms=settings.shutdown_timeout_ms,
        )

    @property
    def is_able(self) -> bool:
        return bool(_text(self._cdc.dsn))

    @property
    def lease(self) -> str:
        """The lease of this connector; it is the same one at every broker."""
        return f"cdc.{self._cdc.prefix}.{self._cdc.slot}"

    @property
    def collector(self) -> Collector:
        return CdcCollector(self.connectors)

    @property
    def requestable(self) -> tuple[str, str] | None:
        """Prefix and slot of the connector that can be asked to add, drop and copy tables; None if there is none."""
        has_slot = self._cdc.tables or self._cdc.messages not in ("", "none")
        return (self._cdc.prefix, self._cdc.slot) if self.is_able and has_slot else None

    def start(self) -> None:
        """Start the connector; call this once the listeners are open."""
        if self.is_able:
            self._process.start()

    def run_by_lease(self, is_held: Callable[[], bool]) -> None:
        """Run the connector between ``begin`` and ``end``, not from ``start`` on.

        ``is_held`` says whether this broker certainly has the lease.
        """
        self._process.beat(is_held, self._settings.broker_session_timeout_ms / 1000)
        self._set_state("standby")

    def _set_state(self, state: str) -> None:
        self._process.status = {"slot": self._cdc.slot, "state": state}

    async def begin(self, epoch: int) -> None:
        """Start the connector, because this broker has the lease."""
        logger.info("running the CDC connector, epoch %d of the lease %s", epoch, self.lease)
        self._set_state("starting")
        self._process.start()

    async def end(self) -> None:
        """Kill the connector, because the lease is lost or about to be given back.

        Another broker may have the lease in half a second, so it gets no time to finish. What it has stored
        and not confirmed, PostgreSQL sends again, and the next connector recognizes it.
        """
        await self._process.kill()
        self._set_state("standby")

    async def close(self) -> None:
        """Let the connector store and confirm what it has read; kill it after a timeout."""
        await self._process.close()

    def connectors(self) -> list[dict[str, Any]]:
        """Return the status of each connector, as ``GET /v1/cdc`` shows it."""
        if not self.is_able:
            return []
        return [{"prefix": self._cdc.prefix, **self._process.status, "restarts": self._process.restarts}]

    def _variables(self) -> dict[str, str]:
        given = {f"STELE_CDC_{name.upper()}": _text(value) for name, value in self._cdc}
        return {**given, "STELE_CDC_BROKER": self._url, "STELE_CDC_REGISTRY": self._registry_url}


def _text(value: object) -> str:
    """Return the value of an option as a variable of the environment."""
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return "" if value is None else str(value)
