"""Asks a connector, which may run anywhere, to copy a table again while it streams."""

from __future__ import annotations

import uuid

import msgspec

from ..client import Client
from . import state as state_of
from .beside import ASKED, MARK
from .connection import connect, translated
from .errors import CdcError
from .notation import split_name
from .options import CdcOptions


def ask_for_copy(client: Client, options: CdcOptions, table: str, where: str) -> str:
    """Note in the state of the connector that a table is to be copied, and wake the connector up; return its name.

    ``where`` is a condition in SQL, for some of its rows. It is evaluated with the rights of the connector, so it goes
    through the state topic, and not through PostgreSQL.

    Raises:
        CdcError: the connector does not follow the table.
        Interrupted, SteleClientError
    """
    name = ".".join(split_name(table))
    known = state_of.load(client, options.state_topic).tables
    if name not in known or known[name].copy == "left":
        followed = sorted(each for each, state in known.items() if state.copy != "left")
        raise CdcError(
            f"the connector with --prefix {options.prefix} and --slot {options.slot} does not follow {name}; "
            f"it follows {', '.join(followed) or 'no tables'}"
        )
    copying = state_of.Copying(name, where=where)
    key = f"{state_of.ASK}{uuid.uuid4()}"
    client.produce(options.state_topic, msgspec.json.encode(copying), key=key, partition=0)
    connection = connect(options.dsn)
    try:
        with translated(), connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_logical_emit_message(true, %s, %s)", (MARK + options.slot, ASKED.decode())
            )
    finally:
        connection.close()
    return name
