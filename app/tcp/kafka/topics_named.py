"""The topics that a request names, and the look for unknown ones.

A client may have created a topic, or added partitions, at another broker a moment ago. An API that names topics finds
out before its handler runs (``Broker.find_topics``), after the check of the client's rights: otherwise the time of a
refusal would tell whether a topic exists.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, cast

from stele.wire.schema import Field, fields_of

from ...work_budget import Pace, Steps, at_once, in_turns
from .context import Answer, Context, awaited

# Arrays of topics, and arrays whose items have such arrays.
_TOPICS = frozenset(("topics", "v3_and_below_topics", "topic_partitions"))
_NAMES = frozenset(("topic_names", "subscribed_topic_names"))
_AROUND = frozenset(("groups", "markers", "dirs", "transactions"))
_NAME_FIELDS = ("name", "topic", "topic_name")
_NUMBER_FIELDS = ("partition_index", "partition")
# To take the name of a topic from a request takes about 3 µs.
_PIECES_OF_TOPIC = 3


class Named(NamedTuple):
    """What a request names: topics, ids of topics, and partitions of either."""

    names: list[str]
    ids: list[bytes]
    partitions: list[tuple[str | bytes, int]]


def looking_for_topics(handle: Callable[[Context, Any], Answer]) -> Callable[[Context, Any], Answer]:
    """Return ``handle`` after a look for unknown topics of the request."""

    @functools.wraps(handle)
    def look(context: Context, request: Any) -> Answer:
        broker = context.broker
        if not broker.cluster.is_shared:
            return handle(context, request)
        if context.is_long:
            return _after_long_look(handle, context, request)
        named = at_once(topics_named(request))
        if broker.knows(named.names, ids=named.ids, partitions=named.partitions):
            return handle(context, request)
        return _after_look(handle, context, request, named)

    return look


async def _after_look(
    handle: Callable[[Context, Any], Answer], context: Context, request: Any, named: Named
) -> Answer:
    await context.broker.try_to_find_topics(named.names, ids=named.ids, partitions=named.partitions)
    return await awaited(handle(context, request))


async def _after_long_look(
    handle: Callable[[Context, Any], Answer], context: Context, request: Any
) -> Answer:
    return await _after_look(handle, context, request, await in_turns(topics_named(request)))


def names_topics(kind: type[Any]) -> bool:
    """Return whether requests of ``kind`` name topics."""
    return any(
        one.name not in _AROUND or names_topics(one.type.element.struct_class) for one in _arrays(kind)
    )


def topics_named(request: Any) -> Steps[Named]:
    """Return what a request names."""
    named = Named([], [], [])
    yield from _add_all(named, request, Pace())
    return named


def _add_all(named: Named, part: Any, pace: Pace) -> Steps[None]:
    """Add what a request, or a part of one, names."""
    for array in _arrays(cast("type[Any]", type(part))):
        items = getattr(part, array.name) or ()
        if array.name in _NAMES:
            named.names.extend(items)
            continue
        for item in items:
            if array.name in _AROUND:
                yield from _add_all(named, item, pace)
            else:
                yield from _add_topic(named, item, pace)


@functools.cache
def _arrays(kind: type[Any]) -> tuple[Field, ...]:
    """Return the arrays of a message that name topics."""
    return tuple(
        one
        for one in fields_of(kind)
        if one.type.kind == "array"
        and (one.name in _NAMES or (one.name in _TOPICS | _AROUND and one.type.element.kind == "struct"))
    )


def _add_topic(named: Named, item: Any, pace: Pace) -> Steps[None]:
    name: str | bytes | None = next(
        (value for field in _NAME_FIELDS if (value := getattr(item, field, None))), None
    )
    topic_id = getattr(item, "topic_id", b"")
    if isinstance(name, str):
        named.names.append(name)
    elif any(topic_id):
        name = bytes(topic_id)
        named.ids.append(name)
    if name is not None:
        for number in _numbers(item):
            named.partitions.append((name, number))
            if pace.is_due():
                yield
    if pace.is_due(_PIECES_OF_TOPIC):
        yield


def _numbers(item: Any) -> Iterator[int]:
    for field in ("partitions", "partition_indexes"):
        for part in getattr(item, field, None) or ():
            if isinstance(part, int):
                yield part
            else:
                yield next(getattr(part, field) for field in _NUMBER_FIELDS if hasattr(part, field))
