"""Operations on quotas."""

from __future__ import annotations

from ..bodies import QuotaBody
from .parts import Operation, answers, json_content
from .request_bodies import request_body

_QUOTA = {
    "type": "object",
    "properties": {
        "entity": {"type": "object", "additionalProperties": {"type": ["string", "null"]}},
        "values": {"type": "object", "additionalProperties": {"type": "number"}},
    },
}
LIST_QUOTAS: Operation = {
    "responses": answers(
        ok=json_content({"type": "object", "properties": {"quotas": {"type": "array", "items": _QUOTA}}})
    )
}
CHANGE_QUOTAS: Operation = {
    "requestBody": request_body(
        QuotaBody, {"entity": {"user": "alice"}, "values": {"producer_byte_rate": 1048576}}
    ),
    "responses": answers(400, 403, 413, 415, ok=json_content(_QUOTA)),
}
