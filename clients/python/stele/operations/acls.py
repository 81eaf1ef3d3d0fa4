"""Access rules, over HTTP only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .base import HttpAnswer, HttpRequest, Operation, json_request

# A rule or a filter of rules, in the names of ``/v1/acls``.
AclDocument = Mapping[str, str]
_PATH = "/v1/acls"


class _Acls(Operation[list[AclDocument]]):
    def from_http(self, answer: HttpAnswer) -> list[AclDocument]:
        return answer.json()["acls"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListAcls(_Acls):
    is_repeatable = True
    selection: AclDocument

    def to_http(self) -> HttpRequest:
        return HttpRequest(method="GET", path=_PATH, params=self.selection)


@dataclass(frozen=True, slots=True, kw_only=True)
class AddAcls(_Acls):
    is_repeatable = True
    acls: Sequence[AclDocument]

    def to_http(self) -> HttpRequest:
        return json_request("POST", _PATH, {"acls": [dict(acl) for acl in self.acls]})


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveAcls(_Acls):
    selection: AclDocument

    def to_http(self) -> HttpRequest:
        return HttpRequest(method="DELETE", path=_PATH, params=self.selection)
