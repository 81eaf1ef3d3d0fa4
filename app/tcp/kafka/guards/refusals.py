"""Responses that refuse a request or a part of it, and changes of late responses."""

from __future__ import annotations

import functools
import sys
import types
import typing
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import MISSING, fields, is_dataclass
from typing import Annotated, Any, cast, get_args, get_origin, get_type_hints

from stele.wire.error_codes import ErrorCode

from ....security.acl import Action, ResourceType
from ....security.authorizer import Access
from ....work_budget import Steps, at_once, in_turns
from ...deferred_response import DeferredResponse
from ..context import Answer, Context, NoResponse

_CODES = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


def access_of(context: Context) -> Access:
    """Return the access of the client; guards run only where there is one."""
    assert context.access is not None
    return context.access


def code_of(action: Action) -> ErrorCode:
    """Return the error of a client that may not do ``action``."""
    return _CODES.get(action.resource_type, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind, vars(sys.modules[kind.__module__]), include_extras=True)
    # Rows are sequences.
    return {
        name: get_args(hint)[0] if get_args(hint)[1:] == ("rows",) else hint for name, hint in hints.items()
    }


def item_type(kind: type, field: str) -> type:
    """Return the type of the items of a field that is a sequence."""
    hint = _hints(kind)[field]
    if get_origin(hint) in (types.UnionType, typing.Union):
        hint = next(part for part in get_args(hint) if part is not type(None))
    (item,) = get_args(hint)
    return item


@functools.cache
def _required(kind: type) -> dict[str, Any]:
    """Return a value of nothing for each field without a default."""
    hints = _hints(kind)
    return {
        field.name: _nothing(hints[field.name])
        for field in fields(kind)
        if field.default is MISSING and field.default_factory is MISSING
    }


def _nothing(hint: Any) -> Any:
    origin = get_origin(hint)
    if origin in (types.UnionType, typing.Union) and type(None) in get_args(hint):
        return None
    if origin is Annotated:
        kind, name = get_args(hint)[:2]
        return bytes(16) if name == "uuid" else kind()
    if origin is Sequence:
        return ()
    if hint in (str, bytes):
        return hint()
    assert is_dataclass(hint)
    return refusal(cast("type", hint))


def refusal(kind: type, **known: Any) -> Any:
    """Return a message of ``kind`` that has nothing but ``known``."""
    return kind(**{**_required(kind), **known})


def refused(kind: type, action: Action, **known: Any) -> Any:
    """Return a message of ``kind`` with the error for a denied ``action``."""
    return with_code(kind, code_of(action), **known)


def with_code(kind: type, code: int, **known: Any) -> Any:
    """Return a message of ``kind`` that has nothing but ``known`` and an error."""
    return refusal(kind, **{_code_field(kind): code}, **known)


@functools.cache
def _code_field(kind: type) -> str:
    return "partition_error_code" if "partition_error_code" in _hints(kind) else "error_code"


def then(answer: Answer, change: Callable[[Any], Steps[Any]]) -> Steps[Answer]:
    """Return ``answer`` with its response changed, also if that comes later."""
    if isinstance(answer, DeferredResponse):
        deferred = cast("DeferredResponse[Any]", answer)
        make = deferred.make
        return DeferredResponse(
            future=deferred.future,
            timeout_ms=deferred.timeout_ms,
            make=lambda has_ended: at_once(change(make(has_ended))),
        )
    if isinstance(answer, NoResponse):
        return answer
    if isinstance(answer, Coroutine):
        return _later(cast("Coroutine[Any, Any, Any]", answer), change)
    return (yield from change(answer))


async def _later(answer: Coroutine[Any, Any, Any], change: Callable[[Any], Steps[Any]]) -> Any:
    return await in_turns(then(await answer, change))
