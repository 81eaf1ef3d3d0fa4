"""Operations on health and the cluster."""

from __future__ import annotations

from .parts import Operation, answers, json_content

HEALTH: Operation = {"responses": answers(ok=json_content({"type": "object"}))}

READY: Operation = {"responses": answers(503, ok=json_content({"type": "object"}))}

CLUSTER: Operation = {"responses": answers(ok=json_content({"type": "object"}))}
