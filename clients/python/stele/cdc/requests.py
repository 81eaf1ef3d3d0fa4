"""Requests to a connector that runs, in a topic: tables to follow, to leave, and to copy once more.

The tables that a connector follows are those of its options, with all requests of the topic applied in order.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..client import Client
from ..errors import AuthorizationError, OffsetOutOfRangeError, UnknownTopicError
from ..wire import cdc_requests
from ..wire.cdc_requests import Action, Request, full_name

_PAGE = 1000


def request(
    client: Client, topic: str, action: Action, tables: Sequence[str], *, where: str = ""
) -> list[str]:
    """Ask the connector of a topic to follow, leave or copy tables; return their full names.

    ``where`` is a condition in SQL, for some of the rows. It is evaluated with the rights of the connector, so requests go
    through a topic of its own, and not through PostgreSQL.

    Raises:
        ValueError: the request is not valid.
        SteleClientError
    """
    records = cdc_requests.encode(action, tables, where=where)
    client.ensure_topic(topic, partitions=1, configs=cdc_requests.CONFIGS)
    for record in records.values():
        client.produce(topic, record)
    return list(records)


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
            except OffsetOutOfRangeError:
                # The topic was made again.
                self._offset = 0
                continue
            for record in page.records:
                try:
                    one = msgspec.json.decode(record.value or b"", type=Request)
                    found.append(msgspec.structs.replace(one, id=f"{record.offset}-{record.timestamp}"))
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
        match one.action:
            case "add":
                wanted.setdefault(one.table, one.table)
            case "drop":
                wanted.pop(one.table, None)
            case "copy":
                pass
    return tuple(wanted.values()), tuple(name for name in wanted if name not in before)
