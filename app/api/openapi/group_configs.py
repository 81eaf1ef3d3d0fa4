"""Operations on the configurations of groups."""

from __future__ import annotations

from ..bodies import GroupConfigsBody
from .parts import GROUP, Operation, answers, json_content, object_of
from .request_bodies import request_body

_CONFIGS = json_content(
    object_of(
        group={"type": "string"},
        configs={"type": "object"},
        effective_configs={"type": "object"},
    )
)

GET_CONFIGS: Operation = {"parameters": [GROUP], "responses": answers(400, ok=_CONFIGS)}

PATCH_CONFIGS: Operation = {
    "parameters": [GROUP],
    "requestBody": request_body(
        GroupConfigsBody,
        {"configs": {"share.record.lock.duration.ms": 60000, "share.delivery.count.limit": None}},
    ),
    "responses": answers(400, 413, 415, 503, ok=_CONFIGS),
}
