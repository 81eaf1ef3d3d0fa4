"""Mirrors, which copy topics of other clusters, over HTTP only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from .base import HttpAnswer, HttpRequest, Operation, json_request


def _path(name: str, suffix: str = "") -> str:
    return f"/v1/mirrors/{quote(name, safe='')}{suffix}"


class ListMirrors(Operation[list[dict[str, Any]]]):
    """Return the status of each mirror, as ``GET /v1/mirrors`` shows it."""

    is_repeatable = True

    def to_http(self) -> HttpRequest:
        return HttpRequest(method="GET", path="/v1/mirrors")

    def from_http(self, answer: HttpAnswer) -> list[dict[str, Any]]:
        return answer.json()["mirrors"]


class GetMirror(Operation[dict[str, Any]]):
    """Return the status of one mirror."""

    is_repeatable = True
    name: str

    def to_http(self) -> HttpRequest:
        return HttpRequest(method="GET", path=_path(self.name))

    def from_http(self, answer: HttpAnswer) -> dict[str, Any]:
        return answer.json()


class PutMirror(Operation[dict[str, Any]]):
    """Create a mirror, or change one; ``document`` is the body of ``PUT /v1/mirrors/{name}``."""

    is_repeatable = True
    name: str
    document: Mapping[str, Any]

    def to_http(self) -> HttpRequest:
        return json_request("PUT", _path(self.name), dict(self.document))

    def from_http(self, answer: HttpAnswer) -> dict[str, Any]:
        return answer.json()


class DeleteMirror(Operation[None]):
    """Stop and forget a mirror; its copies stay."""

    name: str

    def to_http(self) -> HttpRequest:
        return HttpRequest(method="DELETE", path=_path(self.name))

    def from_http(self, answer: HttpAnswer) -> None:
        return None


class PromoteMirror(Operation[dict[str, Any]]):
    """Make ordinary topics of the copies of a mirror, or of one; return what was promoted, and what it may lack."""

    name: str
    topic: str | None

    def to_http(self) -> HttpRequest:
        return json_request("POST", _path(self.name, "/promote"), {"topic": self.topic})

    def from_http(self, answer: HttpAnswer) -> dict[str, Any]:
        return answer.json()


class TruncateMirror(Operation[list[dict[str, Any]]]):
    """Cut copies that have diverged back to what their source has, too; return what was cut."""

    name: str
    topic: str | None

    def to_http(self) -> HttpRequest:
        return json_request("POST", _path(self.name, "/truncate"), {"topic": self.topic})

    def from_http(self, answer: HttpAnswer) -> list[dict[str, Any]]:
        return answer.json()["truncated"]
