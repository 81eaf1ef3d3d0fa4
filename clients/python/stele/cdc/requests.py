"""Requests to a connector that runs, in a topic: tables to follow, to leave, and to copy once more.

The tables that a connector follows are those of its options, with all requests of the topic applied in order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

import msgspec

from ..client import Client
from ..errors import AuthorizationError, OffsetOutOfRangeError, UnknownTopicError
from .decoding.notation import split_name
from .errors import CdcError

CONFIGS = {"retention.ms": "-1"}
_PAGE = 1000
# Whole strings and quoted names; one quote alone is of none.
_TOKEN = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|--|/\*|[()';"$]""")
_REFUSED = frozenset(("--", "/*", "'", '"', ";", "$"))
Action = Literal["add", "drop", "copy"]


class Request(msgspec.Struct, frozen=True):
    """``where`` chooses rows of a copy; ``id`` is the place and time of the request."""

    action: Action
    table: str
    where: str = ""
    id: str = ""


def check_condition(where: str) -> None:
    """Raise CdcError unless a condition in SQL stays within the parentheses in which it is put.

    Otherwise it could end the query, and COPY TO PROGRAM runs programs at the server.
    """
    # In some strings, a backslash hides a quote.
    if "\\" in where or "\0" in where:
        raise CdcError("a condition may not have a backslash")
    depth = 0
    for token in _TOKEN.findall(where):
        if token in _REFUSED:
            raise CdcError(f"a condition may not have {token}")
        depth += {"(": 1, ")": -1}.get(token, 0)
        if depth < 0:
            break
    if depth:
        raise CdcError("the parentheses of the condition do not match")


def topic_of(prefix: str, slot: str) -> str:
    return f"__cdc_requests.{prefix}.{slot}"


def full_name(table: str) -> str:
    """Return a table as ``schema.table``."""
    return ".".join(split_name(table))


def request(client: Client, topic: str, action: Action, tables: Sequence[str], *, where: str = "") -> None:
    """Ask the connector of a topic to follow, leave or copy tables. Raises SteleClientError.

    ``where`` is a condition in SQL, for some of the rows. It is evaluated with the rights of the connector, so requests go
    through a topic of its own, and not through PostgreSQL.
    """
    client.ensure_topic(topic, partitions=1, configs=CONFIGS)
    for table in tables:
        client.produce(topic, msgspec.json.encode(Request(action, full_name(table), where)))


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
