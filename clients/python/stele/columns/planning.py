"""The plan of a schema of any type."""

from __future__ import annotations

from typing import Any

from ..schemas.definitions import ParsedSchema
from .plans import Plan, Wanted


def plan_of(parsed: ParsedSchema, wanted: Wanted = None, message: str | None = None) -> Plan:
    """Return the plan of a schema; ``message`` is that of a Protobuf schema which values are.

    Raises:
        UnknownFieldError: a wanted field does not exist.
        InvalidValue: the schema declares no such message.
    """
    schema: Any = parsed
    match parsed.type:
        case "AVRO":
            from . import avro_columns

            return avro_columns.plan(schema, wanted)
        case "JSON":
            from . import json_columns

            return json_columns.plan(schema, wanted)
        case _:
            from . import protobuf_columns

            return protobuf_columns.plan(schema, wanted, message)
