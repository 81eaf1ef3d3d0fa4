"""Access rules, over HTTP only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .base import HttpAnswer, HttpRequest, Operation, json_request

# A rule or a filter of rules, in the names of ``/v1/acls``.
AclDocument = Mapping[str, str]
_PATH = "/v1/acls"


class _Acls(Operation[list[AclDocument]]):
    def from_http(self, answer: HttpAnswer) -> list[AclDocument]:
        return answer.json()["acls"]


class ListAcls(_Acls):
    is_repeatable = True
    selection: AclDocument

    def to_http(self) -> HttpRequest:
        return HttpRequest(method="GET", path=_PATH, params=self.selection)


class AddAcls(_Acls):
    is_repeatable = True
    acls: Sequence[AclDocument]

    def to_http(self) -> HttpRequest:
        return json_request("POST", _PATH, {"acls": [dict(acl) for acl in self.acls]})


class RemoveAcls(_Acls):
    selection: AclDocument

    def to_http(self) -> HttpRequest:
        return HttpRequest(method="DELETE", path=_PATH, params=self.selection)
