"""Requests to a connector that runs, in a topic: tables to follow and to leave.

The tables that a connector follows are those of its options, with all requests of the topic applied in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from ..client import Client
from ..errors import AuthorizationError, UnknownTopicError
from .notation import split_name

CONFIGS = {"retention.ms": "-1"}
_PAGE = 1000
Action = Literal["add", "drop"]


class Request(msgspec.Struct, frozen=True):
    action: Action
    table: str


def topic_of(prefix: str, slot: str) -> str:
    return f"__cdc_requests.{prefix}.{slot}"


def full_name(table: str) -> str:
    """Return a table as ``schema.table``."""
    return ".".join(split_name(table))


def request(client: Client, topic: str, action: Action, tables: Sequence[str]) -> None:
    """Ask the connector of a topic to follow or to leave tables. Raises SteleClientError."""
    client.ensure_topic(topic, partitions=1, configs=CONFIGS)
    for table in tables:
        client.produce(topic, msgspec.json.encode(Request(action, full_name(table))))


class Requests:
    """Reads the requests of a connector."""

    def __init__(self, client: Client, topic: str) -> None:
        self._client = client
        self._topic = topic
        self._offset = 0

    def read(self) -> list[Request]:
        """Return the requests since the last call. Raises SteleClientError."""
        found: list[Request] = []
        while True:
            try:
                page = self._client.fetch(self._topic, 0, self._offset, max_records=_PAGE)
            except (UnknownTopicError, AuthorizationError):
                # Nobody has asked for anything, or may.
                return found
            for record in page.records:
                try:
                    found.append(msgspec.json.decode(record.value or b"", type=Request))
                except msgspec.DecodeError:
                    # It is of a program that is newer, or none of ours.
                    continue
            if page.next_offset <= self._offset:
                return found
            self._offset = page.next_offset


def applied(tables: Sequence[str], requests: Sequence[Request]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the tables to follow after some requests, and those among them that were not there before."""
    wanted = {full_name(table): table for table in tables}
    before = set(wanted)
    for one in requests:
        if one.action == "add":
            wanted.setdefault(one.table, one.table)
        else:
            wanted.pop(one.table, None)
    return tuple(wanted.values()), tuple(name for name in wanted if name not in before)
