"""Operations on access rules."""

from __future__ import annotations

from typing import Any

from ...security.acl import Operation as AclOperation
from ...security.acl import PatternType, Permission, ResourceType
from ..bodies import AclsBody
from .components import STRING, Schema, array, enum, model
from .parts import Operation, answers, json_content, query
from .request_bodies import request_body


def _names(kind: Any, *left_out: str) -> list[str]:
    return [member.name for member in kind if member.name not in left_out]


def _enums(name: str, kind: Any, *patterns: str) -> tuple[Schema, Schema]:
    """Name the values of rules, without ``patterns``, and those of filters."""
    return enum(name, *_names(kind, *patterns)), enum(f"{name}Filter", *_names(kind))


_RESOURCE, _RESOURCE_FILTER = _enums("AclResourceType", ResourceType, "ANY")
_PATTERN, _PATTERN_FILTER = _enums("AclPatternType", PatternType, "ANY", "MATCH")
_OPERATION, _OPERATION_FILTER = _enums("AclOperation", AclOperation, "ANY")
_PERMISSION, _PERMISSION_FILTER = _enums("AclPermission", Permission, "ANY")
_ACL = model(
    "Acl",
    resource_type=_RESOURCE,
    resource_name=STRING,
    pattern_type=_PATTERN,
    principal=STRING,
    host=STRING,
    operation=_OPERATION,
    permission=_PERMISSION,
)
_ACLS = json_content(model("AclList", acls=array(_ACL)))
_FILTER = [
    query("resource_type", _RESOURCE_FILTER, "what the rule is about"),
    query("resource_name", STRING, "the name or prefix in the rule; * stands for all names"),
    query("pattern_type", _PATTERN_FILTER, "MATCH: all rules that cover resource_name"),
    query("principal", {**STRING, "example": "User:alice"}, "whom the rule is about"),
    query("host", STRING, "the address in the rule; * stands for all"),
    query("operation", _OPERATION_FILTER, "the operation in the rule"),
    query("permission", _PERMISSION_FILTER, "ALLOW or DENY"),
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
