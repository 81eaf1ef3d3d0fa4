"""Iceberg tables of a broker, written in this process, and read back with pyiceberg."""

from __future__ import annotations

import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from stele.client import Client
from stele.columns.values import ValueDecoder
from stele.config import http_url_of
from stele.iceberg.options import WriterOptions
from stele.iceberg.reading import TopicReader
from stele.iceberg.tables import Tables, open_catalog
from stele.iceberg.topic import TopicSpec, TopicWriter
from stele.operations.iceberg_admin import ListIceberg
from stele.operations.topics import HttpListener
from stele.registry.discovery import registry_config
from stele.registry.registry import SchemaRegistry
from stele.testing import BrokerProcess

# The broker that writes no tables itself, so that a test has all turns.
BY_HAND = {"STELE_ICEBERG_ENABLE": "false"}


class Writing:
    """The parts of the process, for turns of single topics. Each ``Writing`` is as a process of its own."""

    def __init__(self, broker: BrokerProcess, directory: Path, warehouse: str = "") -> None:
        self.options = WriterOptions(
            broker=broker.binary_url,
            catalog=str(directory / "catalog.sqlite"),
            warehouse=warehouse or str(directory / "warehouse"),
        )
        self.catalog: SqlCatalog = open_catalog(self.options)
        self.client = Client(broker.binary_url)
        # That of the same broker of a cluster, which knows what was written to it.
        port = self.client.call(HttpListener()).port
        self._http = Client(http_url_of(broker.binary_url, port, has_tls=False))
        self._reader = TopicReader(self.client)
        self._tables = Tables(self.catalog, self.options.warehouse_url)
        self._values = ValueDecoder(lambda: SchemaRegistry(config=registry_config(self.client.config)))
        self._writers: dict[str, TopicWriter] = {}

    def close(self) -> None:
        self._reader.close()
        self._values.close()
        self.client.close()
        self._http.close()
        self.catalog.engine.dispose()

    def writer(self, topic: str) -> TopicWriter:
        """Return what writes a topic, as the broker describes it now."""
        (spec,) = (
            TopicSpec(
                topic=topic,
                topic_id=one["topic_id"],
                mode=one["mode"],
                commit_interval_ms=one["commit_interval_ms"],
                partitions=one["partitions"],
            )
            for one in self._http.call(ListIceberg())["topics"]
            if one["topic"] == topic
        )
        known = self._writers.get(topic)
        if known is None or known.spec != spec:
            known = self._writers[topic] = TopicWriter(spec, self._tables, self._values)
        return known

    def turn(self, topic: str) -> bool:
        return self.writer(topic).turn(self._reader, threading.Event())

    def write(self, topic: str) -> TopicWriter:
        """Write everything that is visible."""
        while self.turn(topic):
            pass
        return self.writer(topic)

    def table(self, name: str) -> Table:
        return self.catalog.load_table(("stele", name))

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Return the rows of a table, by partition and offset; none if there is no such table."""
        try:
            return rows_of(self.table(name))
        except NoSuchTableError:
            return []


def rows_of(table: Table, snapshot_id: int | None = None) -> list[dict[str, Any]]:
    """Return the rows of a snapshot, that of the newest one if none is named, by partition and offset."""
    scan: Any = table.scan(snapshot_id=snapshot_id)
    rows: list[dict[str, Any]] = scan.to_arrow().to_pylist()

    def place(row: Mapping[str, Any]) -> tuple[int, int]:
        record = row.get("_record") or row
        return record["partition"], record["offset"]

    return sorted(rows, key=place)


@contextmanager
def writing(broker: BrokerProcess, directory: Path, warehouse: str = "") -> Generator[Writing]:
    directory.mkdir(exist_ok=True)
    made = Writing(broker, directory, warehouse)
    try:
        yield made
    finally:
        made.close()
