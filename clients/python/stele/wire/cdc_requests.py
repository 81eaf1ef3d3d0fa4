"""Requests to a CDC connector, in a topic: tables to follow, to leave, and to copy once more.

``stele cdc`` writes them, and the broker for ``POST /v1/cdc``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

import msgspec

CONFIGS = {"retention.ms": "-1"}
# Of one call: its records fit into one batch.
TABLES_MAX = 100
CONDITION_BYTES_MAX = 4096
# A name of PostgreSQL.
_NAME_BYTES_MAX = 63
# Whole strings and quoted names; one quote alone is of none.
_TOKEN = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|--|/\*|[()';"$]""")
_REFUSED = frozenset(("--", "/*", ";", "$"))
Action = Literal["add", "drop", "copy"]


class Request(msgspec.Struct, frozen=True):
    """``where`` chooses rows of a copy; ``id`` is the place and time of the request."""

    action: Action
    table: str
    where: str = ""
    id: str = ""


def topic_of(prefix: str, slot: str) -> str:
    """Return the topic with the requests to a connector."""
    return f"__cdc_requests.{prefix}.{slot}"


def full_name(table: str) -> str:
    """Return a table as ``schema.table``; a name without a schema is of ``public``."""
    return table if "." in table else f"public.{table}"


def encode(action: Action, tables: Sequence[str], *, where: str = "") -> dict[str, bytes]:
    """Return the record of each table, by its full name. Raises ValueError: what is wrong with the request."""
    if not 1 <= len(tables) <= TABLES_MAX:
        raise ValueError(f"a request names 1 to {TABLES_MAX} tables, not {len(tables)}")
    if where and action != "copy":
        raise ValueError(f"only copy takes a condition, not {action}")
    if len(where.encode()) > CONDITION_BYTES_MAX:
        raise ValueError(f"a condition may have {CONDITION_BYTES_MAX} bytes")
    check_condition(where)
    names = [full_name(table) for table in tables]
    for name in names:
        parts = name.split(".", 1)
        if "\0" in name or not all(1 <= len(part.encode()) <= _NAME_BYTES_MAX for part in parts):
            raise ValueError(
                f"table {name[:200]!r} must be SCHEMA.TABLE, each of 1 to {_NAME_BYTES_MAX} bytes"
            )
    return {name: msgspec.json.encode(Request(action, name, where)) for name in names}


def check_condition(where: str) -> None:
    """Raise ValueError unless a condition in SQL stays within the parentheses in which it is put.

    Otherwise it could end the query, and COPY TO PROGRAM runs programs at the server.
    """
    # In some strings, a backslash hides a quote.
    if "\\" in where or "\0" in where:
        raise ValueError("a condition may not have a backslash or a NUL")
    depth = 0
    for token in _TOKEN.findall(where):
        if token in ("'", '"'):
            raise ValueError(f"a {token} of the condition is not closed")
        if token in _REFUSED:
            raise ValueError(f"a condition may not have {token}")
        depth += {"(": 1, ")": -1}.get(token, 0)
        if depth < 0:
            break
    if depth:
        raise ValueError("the parentheses of the condition do not match")
