"""All topics of a broker: which there are, whose turn it is, and what a supervisor hears of it."""

from __future__ import annotations

import heapq
import itertools
import logging
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from ..client import Client
from ..columns.values import ValueDecoder
from ..config import broker_urls, http_url_of
from ..errors import SteleClientError, UnknownTopicError, UnsupportedOperationError
from ..operations.iceberg_admin import ListIceberg
from ..operations.topics import HttpListener
from ..registry.discovery import registry_config
from ..registry.registry import SchemaRegistry
from ..supervised import end_with_broker, report
from ..transport.base import retry_pause_s
from .errors import CommitConflict, IcebergError
from .options import WriterOptions
from .reading import TopicReader
from .status import document
from .tables import Tables, open_catalog
from .topic import TopicSpec, TopicWriter

logger: logging.Logger = logging.getLogger("stele.iceberg")

# Turns at once: one computes while another waits for a disk or a bucket.
_WORKERS = 2
# How often the broker is asked for its topics, and how often something new is reported.
_DISCOVERY_S = 1.0
_REPORT_S = 0.5
# The longest pause of a topic that fails.
_PAUSE_MAX_S = 60.0


class IcebergWriter:
    """Writes the tables of all topics of a broker, until ``stop``."""

    def __init__(self, options: WriterOptions) -> None:
        """Raises ``IcebergError`` if the options cannot be used, and whatever the catalog raises."""
        if not options.broker.startswith("stele"):
            raise IcebergError(
                "tables are written from the binary protocol; give a URL like stele://HOST:9009"
            )
        self._tables = Tables(open_catalog(options), options.warehouse_url)
        self._options = options
        self._client = Client(options.broker)
        self._http: Client | None = None
        self._values = ValueDecoder(lambda: SchemaRegistry(config=registry_config(self._client.config)))
        self.stopping: threading.Event = threading.Event()
        self._error = ""
        self._is_running = False
        # Guards what follows.
        self._change = threading.Condition()
        self._writers: dict[str, TopicWriter] = {}
        self._due: list[tuple[float, int, TopicWriter]] = []
        self._numbers = itertools.count()

    def stop(self) -> None:
        """Let turns commit what they have read, and end."""
        self.stopping.set()
        with self._change:
            self._change.notify_all()

    def document(self) -> dict[str, Any]:
        with self._change:
            writers = list(self._writers.values())
        state = "failed" if self._error else "running" if self._is_running else "starting"
        return document(state, self._error, writers)

    def run(self) -> None:
        """Write until ``stop``; the last turns have ended when this returns."""
        workers = [threading.Thread(target=self._work, name=f"stele-iceberg-{n}") for n in range(_WORKERS)]
        for worker in workers:
            worker.start()
        failures = 0
        try:
            while not self.stopping.is_set():
                try:
                    self._discover()
                    failures, self._error, self._is_running = 0, "", True
                except Exception as error:  # noqa: BLE001 - the edge of a thread: it is logged, shown and tried again
                    failures += 1
                    self._error = str(error) or repr(error)
                    logger.warning("the topics of the broker could not be listed: %s", self._error)
                self.stopping.wait(max(_DISCOVERY_S, retry_pause_s(failures) if failures else 0))
        finally:
            self.stop()
            for worker in workers:
                worker.join()
            self._values.close()
            self._client.close()
            if self._http is not None:
                self._http.close()

    # ── which topics ──

    def _discover(self) -> None:
        listed = self._call_http().call(ListIceberg())["topics"]
        specs = {
            one["topic"]: TopicSpec(
                topic=one["topic"],
                topic_id=one["topic_id"],
                mode=one["mode"],
                commit_interval_ms=one["commit_interval_ms"],
                snapshot_retention_ms=one["snapshot_retention_ms"],
                partitions=one["partitions"],
            )
            for one in listed
        }
        with self._change:
            for name in self._writers.keys() - specs.keys():
                del self._writers[name]
            for name, spec in specs.items():
                known = self._writers.get(name)
                if known is None or known.spec != spec:
                    writer = self._writers[name] = TopicWriter(spec, self._tables, self._values)
                    heapq.heappush(self._due, (time.monotonic(), next(self._numbers), writer))
            self._change.notify_all()

    def _call_http(self) -> Client:
        if self._http is None:
            listener = self._client.call(HttpListener())
            if not listener.port:
                raise UnsupportedOperationError(
                    "the broker has no HTTP listener, which lists the topics that are tables"
                )
            url = broker_urls(self._options.broker)[0]
            self._http = Client(http_url_of(url, listener.port, has_tls=listener.has_tls))
        return self._http

    # ── whose turn it is ──

    def _work(self) -> None:
        reader = TopicReader(self._client)
        try:
            while (writer := self._next()) is not None:
                pause_s = self._turn(writer, reader)
                with self._change:
                    if self._writers.get(writer.spec.topic) is writer:
                        heapq.heappush(self._due, (time.monotonic() + pause_s, next(self._numbers), writer))
                        self._change.notify()
        finally:
            reader.close()

    def _next(self) -> TopicWriter | None:
        """Wait until a topic has its turn; return None to end."""
        with self._change:
            while not self.stopping.is_set():
                if not self._due:
                    self._change.wait()
                    continue
                due_s, _, writer = self._due[0]
                if self._writers.get(writer.spec.topic) is not writer:
                    heapq.heappop(self._due)
                elif (pause_s := due_s - time.monotonic()) > 0:
                    self._change.wait(pause_s)
                else:
                    heapq.heappop(self._due)
                    return writer
        return None

    def _turn(self, writer: TopicWriter, reader: TopicReader) -> float:
        """Run a turn of a topic; return after how many seconds it has the next."""
        status, name = writer.status, writer.spec.topic
        begun_s = time.monotonic()
        try:
            has_more = writer.turn(reader, self.stopping)
        except CommitConflict as error:
            logger.warning("%s; table %s goes on from there", error, name)
            return retry_pause_s(0)
        except UnknownTopicError:
            # It was deleted; the next list of topics says so.
            return _DISCOVERY_S
        except Exception as error:
            status.failures += 1
            status.failures_in_row += 1
            status.state, status.reason = "failed", str(error) or repr(error)
            if isinstance(error, IcebergError | SteleClientError):
                logger.warning("table %s cannot be written: %s", name, error)
            else:
                logger.exception("table %s cannot be written", name)
            return min(2.0 ** min(status.failures_in_row, 6), _PAUSE_MAX_S)
        if has_more:
            return 0.0
        try:
            writer.keep_up()
        except Exception:
            logger.exception("the upkeep of table %s failed", name)
        return max(writer.spec.commit_interval_ms / 1000 - (time.monotonic() - begun_s), 0.0)


def run_supervised(options: WriterOptions) -> int:
    """Write until standard input ends, and report the status there, one JSON object per line; return the exit code."""
    try:
        writer = IcebergWriter(options)
    except Exception as error:
        logger.exception("the Iceberg writer cannot start")
        report({"state": "failed", "last_error": str(error) or repr(error), "topics": []})
        return 1
    end_with_broker(writer.stop)
    _run(writer, report)
    return 0


def run_alone(options: WriterOptions) -> None:
    """Write until SIGINT or SIGTERM. Raises ``IcebergError``, and whatever the catalog raises."""
    _run(IcebergWriter(options), lambda _: None)


def _run(writer: IcebergWriter, report: Callable[[dict[str, Any]], None]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: writer.stop())
    working = threading.Thread(target=writer.run)
    working.start()
    last: dict[str, Any] = {}
    while working.is_alive():
        working.join(_REPORT_S)
        if (now := writer.document()) != last:
            last = now
            report(now)
