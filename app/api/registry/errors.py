"""Answer with errors of the registry's API in place of problem documents."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, TypedDict

import msgspec
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Scope

from ..replaced_problems import ReplaceProblems
from ..requests import preferred

# The first is the default.
MEDIA_TYPES = (
    "application/vnd.schemaregistry.v1+json",
    "application/vnd.schemaregistry+json",
    "application/json",
)
# Clients tell a login that is missing and a right that is missing from other refusals by these codes.
_CODES = {401: 40101, 403: 40301}
# Of these, other registries say no more than the status, and clients compare it.
_BRIEF = frozenset({404, 405, 406, 415})


class RegistryErrorJson(TypedDict):
    """An error: the HTTP status or a number that begins with it, and a sentence."""

    error_code: int
    message: str


def encode_error(problem: Mapping[str, Any]) -> tuple[bytes, str]:
    """Return a problem document as an error of the registry, and its media type."""
    status: int = problem["status"]
    # That of an error of the registry itself.
    code: int | None = problem.get("error_code")
    is_brief = code is None and status in _BRIEF
    error: RegistryErrorJson = {
        "error_code": _CODES.get(status, status) if code is None else code,
        "message": f"HTTP {status} {HTTPStatus(status).phrase}" if is_brief else problem["detail"],
    }
    return msgspec.json.encode(error), MEDIA_TYPES[0]


def _encode_for(scope: Scope, problem: Mapping[str, Any]) -> tuple[int, bytes, str]:
    body, media_type = encode_error(problem)
    accept = ", ".join(Headers(scope=scope).getlist("accept"))
    return problem["status"], body, preferred(accept, MEDIA_TYPES) or media_type


def registry_errors(app: ASGIApp) -> ASGIApp:
    """Return ``app`` with errors of the registry in place of its problem documents."""
    return ReplaceProblems(app, _encode_for)
