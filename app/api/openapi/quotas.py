"""Operations on quotas."""

from __future__ import annotations

from ..bodies import QuotaBody
from .components import NUMBER, array, model, named
from .parts import Operation, answers, json_content
from .request_bodies import request_body

_ENTITY = named(
    "QuotaEntity",
    {
        "type": "object",
        "additionalProperties": {"type": ["string", "null"]},
        "minProperties": 1,
        "description": "names by type: user, client-id, both of them, or ip; null for all without a quota of their own",
    },
)
_CHANGES = named(
    "QuotaChanges",
    {
        "type": "object",
        "additionalProperties": {"type": ["number", "null"]},
        "description": "quotas by Kafka's names; null removes one",
    },
)
_QUOTA = model(
    "Quota",
    entity=_ENTITY,
    values=named("QuotaValues", {"type": "object", "additionalProperties": NUMBER}),
)
LIST_QUOTAS: Operation = {
    "responses": answers(403, ok=json_content(model("QuotaList", quotas=array(_QUOTA))))
}
ALTER_QUOTAS: Operation = {
    "requestBody": request_body(
        QuotaBody,
        {"entity": {"user": "alice"}, "values": {"producer_byte_rate": 1048576}},
        fields={"entity": _ENTITY, "values": _CHANGES},
    ),
    "responses": answers(400, 403, 413, 415, ok=json_content(_QUOTA)),
}
