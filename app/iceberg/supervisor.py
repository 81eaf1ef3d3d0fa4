"""Runs ``stele iceberg run`` beside the broker while a topic is a table; in a cluster, at the broker with its lease."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prometheus_client.registry import Collector

from ..broker.broker import Broker
from ..broker.topics import Topic
from ..errors import InvalidRequest
from ..settings import Settings
from ..supervised_process import SupervisedProcess
from ..work_budget import visited
from .catalog import IcebergCatalog, select_in_file, select_in_postgres
from .metrics import IcebergCollector

if TYPE_CHECKING:
    from ..postgres.pool import PostgresPool

logger = logging.getLogger(__name__)

# What the process imports.
_NEEDED = ("pyiceberg", "pyarrow", "sqlalchemy", "numpy")
# Of a table of which the process has reported nothing.
_UNKNOWN: Mapping[str, Any] = {
    "rows": 0,
    "error_rows": 0,
    "commits": 0,
    "failures": 0,
    "lost_records": 0,
    "lag_records": None,
    "lag_seconds": None,
    "snapshot_id": None,
    "committed_ms": None,
    "reason": None,
}


class IcebergTables:
    """The topics of a broker that are tables, and the process that writes them.

    ``start`` runs the process whenever there is such a topic, until ``close``. With several brokers it implements
    ``LeaseWork`` instead, for ``lease``.
    """

    lease = "iceberg"

    def __init__(
        self,
        settings: Settings,
        broker: Broker,
        broker_url: str,
        api_key: str = "",
        pool: PostgresPool | None = None,
    ) -> None:
        """``api_key`` logs the process in to the broker; empty without logins. ``pool`` is that of a cluster."""
        self._settings = settings
        self._broker = broker
        self._url = broker_url
        self._names: set[str] = set()
        self._process = SupervisedProcess(
            "the Iceberg writer",
            ("iceberg", "run", "--supervised"),
            self._variables,
            api_key=api_key,
            status={"state": "starting", "topics": []},
            good_states=("running",),
            shutdown_timeout_ms=settings.shutdown_timeout_ms,
        )
        select = select_in_file(self._catalog_file) if pool is None else select_in_postgres(pool)
        self.catalog = IcebergCatalog(select, warehouse=self.warehouse)
        self._changes = asyncio.Lock()
        self._following = set[asyncio.Task[None]]()
        # Whether the process may run here: after the start, and in a cluster with the lease.
        self._is_wanted_here = False
        self._is_running = False
        self._problem = ""

    @property
    def collector(self) -> Collector:
        return IcebergCollector(lambda: list(islice(self._tables(), self._settings.metrics_topics_max)))

    def open(self) -> None:
        """Find the topics that are tables, and follow changes; call this before the listeners are open."""
        self._names = {topic.name for topic in self._broker.topics() if _is_table(topic)}
        self._broker.observe_topics(self._topic_changed)

    def start(self) -> None:
        """Run the process from now on while there is a table; call this once the listeners are open."""
        self._is_wanted_here = True
        self._follow()

    def run_by_lease(self, is_held: Callable[[], bool]) -> None:
        """Run the process between ``begin`` and ``end``. ``is_held``: whether this broker certainly has the lease."""
        self._process.beat(is_held, self._settings.broker_session_timeout_ms / 1000)

    async def begin(self, epoch: int) -> None:
        """Run the process, because this broker has the lease."""
        self._is_wanted_here = True
        await self._settle()

    async def end(self) -> None:
        """Kill the process: commits are conditional, so that another one may begin meanwhile."""
        self._is_wanted_here = False
        async with self._changes:
            await self._process.kill()
            self._is_running = False

    async def close(self) -> None:
        """Let the process commit what it has read; kill it after a timeout."""
        self._is_wanted_here = False
        async with self._changes:
            await self._process.close()

    def _topic_changed(self, name: str) -> None:
        had, has = name in self._names, self._broker.has_topic(name) and _is_table(self._broker.topic(name))
        if has:
            self._names.add(name)
        else:
            self._names.discard(name)
        if had != has:
            self._follow()

    def _follow(self) -> None:
        task = asyncio.create_task(self._settle())
        self._following.add(task)
        task.add_done_callback(self._following.discard)

    async def _settle(self) -> None:
        """Start the process if it is needed, and end it if not."""
        async with self._changes:
            problem = self._problem_here() if self._names else ""
            if problem and problem != self._problem:
                logger.warning(
                    "%d topics have stele.iceberg.mode, and none is written as a table: %s",
                    len(self._names),
                    problem,
                )
            self._problem = problem
            is_wanted = self._is_wanted_here and self._settings.iceberg_enable
            is_needed = is_wanted and bool(self._names) and not problem
            if is_needed and not self._is_running:
                self._process.start()
            elif self._is_running and not is_needed:
                await self._process.close()
            self._is_running = is_needed

    @property
    def is_able(self) -> bool:
        """Whether this broker can write tables, so that it may have the lease."""
        return self._settings.iceberg_enable and not self._problem_here()

    def _problem_here(self) -> str:
        """Return why this broker cannot write tables; empty if it can, or shall not."""
        if not self._settings.iceberg_enable:
            return ""
        if any(importlib.util.find_spec(name) is None for name in _NEEDED):
            return "the extra iceberg is missing: pip install 'stele-broker[iceberg]', and start the broker again"
        if self._settings.storage == "shared" and self._settings.iceberg_warehouse is None:
            return "brokers with shared storage need STELE_ICEBERG_WAREHOUSE: s3://BUCKET/PREFIX, or a directory that all have"
        return ""

    def _variables(self) -> dict[str, str]:
        settings = self._settings
        catalog = str(self._catalog_file)
        if settings.storage == "shared" and settings.postgres_url is not None:
            catalog = settings.postgres_url.get_secret_value()
        return {
            "STELE_ICEBERG_BROKER": self._url,
            "STELE_ICEBERG_CATALOG": catalog,
            "STELE_ICEBERG_WAREHOUSE": self.warehouse,
        }

    @property
    def _catalog_file(self) -> Path:
        return self._settings.data_dir.absolute() / "iceberg" / "catalog.sqlite"

    @property
    def warehouse(self) -> str:
        """The URL or directory of the files of all tables."""
        directory = self._settings.data_dir.absolute() / "iceberg" / "warehouse"
        return self._settings.iceberg_warehouse or str(directory)

    # ── what operators see ──

    async def status(self) -> dict[str, Any]:
        """Return the state of the process, and of each table by name, with pauses."""
        process = self._process.status
        state, error = process["state"], process.get("last_error")
        if not self._names:
            state, error = "idle", None
        elif self._problem:
            state, error = "failed", self._problem
        elif not self._is_running:
            state, error = "standby", None
        return {
            "state": state,
            "restarts": self._process.restarts,
            "last_error": error,
            "warehouse": self.warehouse.partition("?")[0],
            "topics": [table async for table in visited(self._tables())],
        }

    def _tables(self) -> Iterator[dict[str, Any]]:
        """Yield the state of each table, by name; the caller may pause in between."""
        reported = self._reported()
        for name in sorted(self._names):
            topic = self._broker.topic_by_name(name)
            # It may have been deleted during a pause.
            if topic is not None:
                yield self._shown(topic, reported.get(name))

    def _reported(self) -> dict[str, Mapping[str, Any]]:
        """Return what the process reports of each topic."""
        topics = self._process.status.get("topics", ()) if self._is_running else ()
        return {one["topic"]: one for one in topics}

    def status_of(self, topic: str) -> dict[str, Any]:
        """Return the state of the table of one topic.

        Raises:
            UnknownTopic: there is none.
            InvalidRequest: the topic is no table.
        """
        if topic in self._names:
            return self._shown(self._broker.topic(topic), self._reported().get(topic))
        self._broker.topic(topic)
        raise InvalidRequest(
            f"topic {topic!r} is no table; set its configuration stele.iceberg.mode to key_value or value_schema"
        )

    def _shown(self, topic: Topic, reported: Mapping[str, Any] | None) -> dict[str, Any]:
        if reported is None or reported["topic_id"] != str(topic.topic_id):
            reported = {
                **_UNKNOWN,
                "state": "failed" if self._problem else "starting",
                "reason": self._problem or None,
            }
        return {
            **reported,
            "topic": topic.name,
            "topic_id": str(topic.topic_id),
            "partitions": topic.partitions,
            "mode": topic.config.iceberg_mode,
            "commit_interval_ms": topic.config.iceberg_commit_interval_ms,
            "snapshot_retention_ms": topic.config.iceberg_snapshot_retention_ms,
            "table": f"stele.{topic.name}",
        } | ({} if self._problem or self._is_running else {"state": "standby"})


def _is_table(topic: Topic) -> bool:
    return topic.config.iceberg_mode != "off"
