"""Operations on change data capture."""

from __future__ import annotations

from .components import INTEGER, NULLABLE_INTEGER, NULLABLE_STRING, STRING, array, enum, model, named
from .parts import Operation, answers, json_content

_TABLE = model(
    "CdcTable", optional=("copied", "expected", "changes"), copied=INTEGER, expected=INTEGER, changes=INTEGER
)
_STATE = enum(
    "CdcState", "standby", "starting", "connecting", "copying", "streaming", "waiting", "stopped", "failed"
)
_COUNTS = {
    "events": INTEGER,
    "repeated": INTEGER,
    "transactions": INTEGER,
    "notifications": INTEGER,
    "commit_ms": INTEGER,
    "failures": INTEGER,
}
_OPTIONAL = {
    "database": STRING,
    "confirmed_lsn": STRING,
    "lag_bytes": NULLABLE_INTEGER,
    "wal_status": NULLABLE_STRING,
    **_COUNTS,
    "last_error": NULLABLE_STRING,
    "tables": named("CdcTables", {"type": "object", "additionalProperties": _TABLE}),
}
_CONNECTOR = model(
    "CdcConnector",
    optional=tuple(_OPTIONAL),
    slot=STRING,
    state=_STATE,
    restarts=INTEGER,
    **_OPTIONAL,
)

GET_CDC: Operation = {
    "responses": answers(ok=json_content(model("CdcConnectorList", connectors=array(_CONNECTOR))))
}
