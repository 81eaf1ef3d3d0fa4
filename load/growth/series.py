"""The series by their names."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple

from . import connections, groups, http, partitions, readers, tables, transactions
from .costs import Costs, Point


class Series(NamedTuple):
    """``measure`` needs a broker with ``environment``; ``sizes`` are those of a quick run, too, but for the last.

    With ``properties``, it also measures Apache Kafka with these.
    """

    measure: Callable[[Costs, Sequence[int]], Coroutine[Any, Any, list[Point]]]
    sizes: tuple[int, int, int]
    unit: str
    environment: Mapping[str, str] = {}
    properties: Mapping[str, str] | None = None


SERIES = {
    "connections": Series(connections.connections, connections.SIZES, "connection"),
    "partitions": Series(
        partitions.partitions, partitions.SIZES, "partition", partitions.ENVIRONMENT, properties={}
    ),
    "readers": Series(readers.readers, readers.SIZES, "MiB"),
    "tables": Series(tables.keys, tables.SIZES, "row"),
    "groups": Series(groups.groups, groups.SIZES, "member", properties=groups.KAFKA_PROPERTIES),
    "transactional ids": Series(
        transactions.transactional_ids, transactions.SIZES, "id", transactions.ENVIRONMENT
    ),
    "aborted transactions": Series(transactions.aborted, transactions.ABORTED, "transaction"),
    "waiters": Series(http.waiters, http.WAITERS, "waiter", properties={}),
    "values": Series(http.values, http.VALUES, "MiB", http.ENVIRONMENT),
}
