"""Topics as Iceberg tables, over HTTP only."""

from __future__ import annotations

from typing import Any

from .base import HttpAnswer, HttpRequest, Operation, segment


class ListIceberg(Operation[dict[str, Any]]):
    """Return the state of the writer, and of each table, as ``GET /v1/iceberg`` shows it."""

    is_repeatable = True

    def to_http(self) -> HttpRequest:
        return HttpRequest(method="GET", path="/v1/iceberg")

    def from_http(self, answer: HttpAnswer) -> dict[str, Any]:
        return answer.json()


class GetIceberg(Operation[dict[str, Any]]):
    """Return the state of the table of one topic."""

    is_repeatable = True
    topic: str

    def to_http(self) -> HttpRequest:
        return HttpRequest(method="GET", path=f"/v1/iceberg/{segment(self.topic)}")

    def from_http(self, answer: HttpAnswer) -> dict[str, Any]:
        return answer.json()
