"""Quotas of users, client ids and addresses, over HTTP only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .base import HttpAnswer, HttpRequest, Operation, json_request

Quota = tuple[dict[str, str | None], dict[str, float]]


def _quota(document: Mapping[str, Any]) -> Quota:
    return dict(document["entity"]), dict(document["values"])


class ListQuotas(Operation[list[Quota]]):
    """List all quotas: the names by type, where None stands for the default, and the values."""

    is_repeatable = True

    def to_http(self) -> HttpRequest:
        return HttpRequest(method="GET", path="/v1/quotas")

    def from_http(self, answer: HttpAnswer) -> list[Quota]:
        return [_quota(one) for one in answer.json()["quotas"]]


class ChangeQuotas(Operation[Quota]):
    """Set quotas of one entity, and remove those whose value is None; return what it has then."""

    is_repeatable = True
    entity: Mapping[str, str | None]
    values: Mapping[str, float | None]

    def to_http(self) -> HttpRequest:
        return json_request("PATCH", "/v1/quotas", {"entity": dict(self.entity), "values": dict(self.values)})

    def from_http(self, answer: HttpAnswer) -> Quota:
        return _quota(answer.json())
