"""Operations on access rules."""

from __future__ import annotations

from typing import Any

from ...security.acl import Operation as AclOperation
from ...security.acl import PatternType, Permission, ResourceType
from ..bodies import AclsBody
from .parts import STRING, Operation, answers, json_content, list_of, object_of, query
from .request_bodies import request_body


def _names(kind: Any, *left_out: str) -> dict[str, Any]:
    return {"type": "string", "enum": [member.name for member in kind if member.name not in left_out]}


_ACL = {
    "resource_type": _names(ResourceType, "ANY"),
    "resource_name": STRING,
    "pattern_type": _names(PatternType, "ANY", "MATCH"),
    "principal": STRING,
    "host": STRING,
    "operation": _names(AclOperation, "ANY"),
    "permission": _names(Permission, "ANY"),
}
_ACLS = json_content(object_of(acls=list_of(**_ACL)))
_FILTER = [
    query("resource_type", _names(ResourceType), "what the rule is about"),
    query("resource_name", STRING, "the name or prefix in the rule; * stands for all names"),
    query("pattern_type", _names(PatternType), "MATCH: all rules that cover resource_name"),
    query("principal", {**STRING, "example": "User:alice"}, "whom the rule is about"),
    query("host", STRING, "the address in the rule; * stands for all"),
    query("operation", _names(AclOperation), "the operation in the rule"),
    query("permission", _names(Permission), "ALLOW or DENY"),
]
_EXAMPLE = {
    "acls": [
        {
            "principal": "User:alice",
            "operation": "READ",
            "resource_type": "TOPIC",
            "resource_name": "orders",
            "pattern_type": "PREFIXED",
        }
    ]
}

LIST_ACLS: Operation = {"parameters": _FILTER, "responses": answers(400, 403, 409, ok=_ACLS)}
ADD_ACLS: Operation = {
    "requestBody": request_body(AclsBody, _EXAMPLE),
    "responses": answers(400, 403, 409, 413, 415, ok=_ACLS, ok_status=201),
}
REMOVE_ACLS: Operation = {"parameters": _FILTER, "responses": answers(400, 403, 409, ok=_ACLS)}
