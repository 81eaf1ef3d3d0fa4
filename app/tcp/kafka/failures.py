"""The response to a request whose handler has failed, made from the schemas.

A handler answers the errors that it expects in its own way, item by item for example. This is what all the others
become: the error code where the response has one for the whole request, otherwise in each item that it would have
had for an item of the request, as in Kafka (``AbstractRequest.getErrorResponse``).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, cast

from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.api import Api
from stele.wire.kafka.cluster import AlterReplicaLogDirsRequest, DescribeLogDirsRequest
from stele.wire.kafka.metadata import MetadataResponse
from stele.wire.kafka.produce import ProduceRequest
from stele.wire.schema import Field, fields_of

from ...broker.counts import Counts
from ...errors import BrokerClosing, SteleError
from ...work_budget import Pace, Steps
from ..errors import failure
from .context import MESSAGE_CHARACTERS_MAX, NoResponse
from .guards.refusals import refusal

_CODES = frozenset(("error_code", "partition_error_code"))
# Fields that name an item, and what requests call them where the names differ.
_NAMES = {
    "name": "name",
    "topic": "topic",
    "topic_name": "name",
    "topic_id": "topic_id",
    "group_id": "group_id",
    "user": "name",
    "producer_id": "producer_id",
    "resource_type": "resource_type",
    "resource_name": "resource_name",
    "entity_type": "entity_type",
    "entity_name": "entity_name",
    "index": "index",
    "partition": "partition",
    "partition_index": "partition_index",
}
_OTHER_NAMES = {"topic_name": "topic_name", "partition_index": "partition"}
# Numbers whose value for "none" is -1.
_MINUS_ONE = (
    "offset",
    "producer_epoch",
    "leader_epoch",
    "watermark",
    "producer_id",
    "leader_id",
    "timestamp",
)
# Fields of the topics in requests to the leaders of partitions, and fields of requests to coordinators.
_LED = frozenset(("partitions", "partition_data"))
_COORDINATED = frozenset(
    ("group_id", "groups", "group_ids", "groups_names", "transactional_id", "transactional_ids")
)
# To make an item takes about 20 µs.
_PIECES_OF_ITEM = 20
_EMPTY: dict[str, Any] = {"string": "", "bytes": b"", "records": b"", "array": ()}
# Where the items of a request are not in an array of their own.
_PARTS: dict[type, Callable[[Any], Iterable[Any]]] = {
    AlterReplicaLogDirsRequest: lambda request: (topic for path in request.dirs for topic in path.topics),
    # One item without a name: the first versions have no code for all, and the request names no directory.
    DescribeLogDirsRequest: lambda request: (None,),
}


def failure_of(
    api: Api, version: int, request: Any, error: Exception, *, peer: str, counts: Counts
) -> Steps[Any | NoResponse]:
    """Return the response to a request of ``peer`` whose handler has raised ``error``.

    ``NoResponse`` if the client waits for none. A mistake of the broker is logged and counted.
    """
    code, text = failure(error, f"{api.name} v{version} of {peer}", counts)
    if isinstance(error, BrokerClosing):
        code = _closing_code(api)
    if isinstance(request, ProduceRequest) and request.acks == 0:
        return NoResponse(failure=error if isinstance(error, SteleError) else SteleError(text))
    made = _Failure(version, code, text[:MESSAGE_CHARACTERS_MAX])
    return (yield from made.message(api.response, request, is_item=False))


def _closing_code(api: Api) -> ErrorCode:
    """Return the code after which a client looks for another broker."""
    declared = fields_of(api.request)
    if any(one.name in _COORDINATED for one in declared):
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    structs = [
        one.type.element for one in declared if one.type.kind == "array" and one.type.element.kind == "struct"
    ]
    names = {inner.name for struct in structs for inner in fields_of(struct.struct_class)}
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if names & _LED else ErrorCode.NOT_CONTROLLER


class _Failure:
    """Makes messages of one version with one error."""

    def __init__(self, version: int, code: int, text: str) -> None:
        self._version = version
        self._code = code
        self._text = text
        self._pace = Pace()

    def message(self, kind: type, request: Any, *, is_item: bool) -> Steps[Any]:
        """Return a message of ``kind`` with the error, for ``request`` or an item of it."""
        declared = [one for one in fields_of(kind) if self._version in one.versions]
        has_code = any(one.name in _CODES for one in declared)
        made = refusal(kind)
        for one in declared:
            if one.name in _CODES:
                value = self._code
            elif one.name == "error_message":
                value = self._text
            elif one.type.kind == "array" and self._has_items(kind, one, has_code=has_code):
                value = yield from self._items(request, one)
            elif is_item and (named := _named(request, one, declared)) is not None:
                value = named
            else:
                value = _nothing(getattr(made, one.name), one, self._version)
            setattr(made, one.name, value)
        return made

    def _has_items(self, kind: type, array: Field, *, has_code: bool) -> bool:
        if array.type.element.kind != "struct":
            return False
        if array.name == "entity":
            # It names the item that has the code.
            return True
        has_codes = _has_code(array.type.element.struct_class, self._version)
        # Clients of Metadata look at the items though there is a code for all.
        return has_codes and (not has_code or kind is MetadataResponse)

    def _items(self, request: Any, array: Field) -> Steps[list[Any]]:
        kind = array.type.element.struct_class
        is_named = any(one.name in _NAMES for one in fields_of(kind))
        made: dict[object, Any] = {}
        for part in self._parts(request, array):
            item = yield from self.message(kind, part, is_item=True)
            # An item may be named several times, each in an array of its own; results of access rules have no names.
            made[repr(item) if is_named else len(made)] = item
            if self._pace.is_due(_PIECES_OF_ITEM):
                yield
        return list(made.values())

    def _parts(self, request: Any, array: Field) -> Iterable[Any]:
        """Return the items of ``request`` for which the response has those of ``array``."""
        special = _PARTS.get(cast("type[Any]", type(request)))
        if special is not None:
            return special(request)
        arrays = [
            one
            for one in fields_of(cast("type[Any]", type(request)))
            if one.type.kind == "array" and self._version in one.versions
        ]
        named = [one for one in arrays if one.name == array.name] or arrays
        return [part for one in named for part in getattr(request, one.name) or ()]


@functools.cache
def _has_code(kind: type, version: int) -> bool:
    """Return whether messages of ``kind`` carry an error code, or their items do."""
    present = [one for one in fields_of(kind) if version in one.versions]
    arrays = (one.type.element for one in present if one.type.kind == "array")
    return any(one.name in _CODES for one in present) or any(
        element.kind == "struct" and _has_code(element.struct_class, version) for element in arrays
    )


def _named(part: Any, field: Field, declared: list[Field]) -> Any:
    """Return what an item of a request says for a field that names it.

    None for other fields.
    """
    if isinstance(part, str | int):
        # The item is a name, or the number of a partition.
        kind = "string" if isinstance(part, str) else "int32"
        names = (one for one in declared if one.type.kind == kind and one.name != "error_message")
        return part if next(names, None) is field else None
    for name in (_NAMES.get(field.name), _OTHER_NAMES.get(field.name)):
        if name is not None and (value := getattr(part, name, None)) is not None:
            return value
    return None


def _nothing(value: Any, field: Field, version: int) -> Any:
    """Return ``value``, that of a field without content, as this version can carry it."""
    if value is None and field.tag is None and version not in field.nullable:
        return _EMPTY.get(field.type.kind, 0)
    if value == 0 and field.default is None and field.name.endswith(_MINUS_ONE):
        return -1
    return value
