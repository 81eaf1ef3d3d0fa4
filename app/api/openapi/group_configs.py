"""Operations on the configurations of groups."""

from __future__ import annotations

from ..bodies import GroupConfigsBody
from .components import CONFIGS, STRING, model
from .parts import GROUP, Operation, answers, json_content
from .request_bodies import request_body

_CONFIGS = json_content(model("GroupConfigs", group=STRING, configs=CONFIGS, effective_configs=CONFIGS))

GET_CONFIGS: Operation = {"parameters": [GROUP], "responses": answers(400, ok=_CONFIGS)}

PATCH_CONFIGS: Operation = {
    "parameters": [GROUP],
    "requestBody": request_body(
        GroupConfigsBody,
        {"configs": {"share.record.lock.duration.ms": 60000, "share.delivery.count.limit": None}},
    ),
    "responses": answers(400, 413, 415, 503, ok=_CONFIGS),
}
