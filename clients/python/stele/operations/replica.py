"""The replica of a broker, over HTTP only."""

from __future__ import annotations

from typing import Any

from .base import HttpAnswer, HttpRequest, Operation


class GetReplica(Operation[dict[str, Any]]):
    """Return the state of the replica, as ``GET /v1/replica`` does."""

    is_repeatable = True

    def to_http(self) -> HttpRequest:
        return HttpRequest(method="GET", path="/v1/replica")

    def from_http(self, answer: HttpAnswer) -> dict[str, Any]:
        return dict(answer.json())
