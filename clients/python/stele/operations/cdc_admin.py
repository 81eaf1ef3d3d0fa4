"""The CDC connectors that a broker runs, over HTTP only."""

from __future__ import annotations

from typing import Any

from .base import HttpAnswer, HttpRequest, Operation


class ListConnectors(Operation[list[dict[str, Any]]]):
    """Return the status of each connector, as ``GET /v1/cdc`` shows it."""

    is_repeatable = True

    def to_http(self) -> HttpRequest:
        return HttpRequest(method="GET", path="/v1/cdc")

    def from_http(self, answer: HttpAnswer) -> list[dict[str, Any]]:
        return answer.json()["connectors"]
