"""Guards that many APIs share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any, TypeVar

from ....security.acl import CLUSTER_NAME, Action
from ....work_budget import Pace, Steps
from ..context import Answer, Context
from .refusals import access_of, code_of, item_type, refusal, refused, then, with_code

# A check of one topic takes about 2 µs, 40 µs if a denial is logged, and a refusal 5 µs.
PIECES_OF_CHECK, PIECES_OF_REFUSAL = 10, 5
# Fields of a part that name it, too.
_COPIED = ("topic_id", "resource_type")

Handle = Callable[[Context, Any], Answer]
_T = TypeVar("_T")
# In steps where a request names any number of resources.
Check = Callable[[Context, Any, Handle], Answer | Steps[Answer]]


@dataclass(frozen=True, slots=True)
class Guard:
    """The rights that an API needs, and the check of them.

    ``rights`` is empty for APIs that need none.
    """

    rights: tuple[Action, ...]
    check: Check


def open_to_all() -> Guard:
    """Return the guard of an API that shows and changes nothing."""
    return Guard((), lambda context, request, handle: handle(context, request))


def on_cluster(
    action: Action, response: type, refuse: Callable[[Any], Answer | Steps[Answer]] | None = None
) -> Guard:
    """Return the guard of an API that needs one right on the cluster.

    ``refuse`` makes the response to a request that is refused, for APIs whose errors
    are in parts of the response.
    """

    def check(context: Context, request: Any, handle: Handle) -> Answer | Steps[Answer]:
        if access_of(context).allows(action, CLUSTER_NAME):
            return handle(context, request)
        return refused(response, action) if refuse is None else refuse(request)

    return Guard((action,), check)


def on_name(action: Action, field: str, response: type, **known: Any) -> Guard:
    """Return the guard of an API that needs one right on what ``field`` names."""

    def check(context: Context, request: Any, handle: Handle) -> Answer:
        if access_of(context).allows(action, getattr(request, field) or ""):
            return handle(context, request)
        return refused(response, action, **known)

    return Guard((action,), check)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Where a request has its parts, and the response theirs.

    ``field`` and ``answers`` are the lists; ``name`` and ``answer_name`` the fields of
    their items that name the resource, empty if the items of the request are names.
    """

    field: str
    name: str
    answers: str
    answer_name: str
    # Lists of partitions within the items; empty if there are none.
    partitions: str = ""
    # The number of a partition, empty if the items are numbers.
    index: str = ""
    answer_partitions: str = ""
    answer_index: str = ""

    def refuse(self, response: type, denied: Iterable[tuple[Any, int]]) -> Steps[list[Any]]:
        """Return the items of the response that refuse parts of the request, each with its code."""
        item = item_type(response, self.answers)
        items: list[Any] = []
        pace = Pace()
        for part, code in denied:
            known: dict[str, Any] = {
                self.answer_name: getattr(part, self.name) if self.name else part,
            }
            for name in _COPIED:
                if getattr(part, name, None) is not None:
                    known[name] = getattr(part, name)
            if not self.answer_partitions:
                items.append(with_code(item, code, **known))
            else:
                inner = item_type(item, self.answer_partitions)
                partitions = known[self.answer_partitions] = list[Any]()
                for partition in getattr(part, self.partitions):
                    number = getattr(partition, self.index) if self.index else partition
                    partitions.append(with_code(inner, code, **{self.answer_index: number}))
                    if pace.is_due(PIECES_OF_REFUSAL):
                        yield
                items.append(refusal(item, **known))
            if pace.is_due(PIECES_OF_REFUSAL):
                yield
        return items

    def refuse_all(self, response: type, denied: Iterable[Any], action: Action) -> Steps[list[Any]]:
        """``refuse`` parts that all need the same right."""
        return self.refuse(response, zip(denied, repeat(code_of(action)), strict=False))


# Topics with their partitions, as most requests about offsets name them.
PARTITIONS = Parts(
    field="topics",
    name="name",
    answers="topics",
    answer_name="name",
    partitions="partitions",
    index="partition_index",
    answer_partitions="partitions",
    answer_index="partition_index",
)


def name_of(context: Context, part: Any, field: str) -> str | None:
    """Return the name of a topic that is named or has an id.

    None if nothing has the id.
    """
    name: str | None = getattr(part, field) if field else part
    if name or not any(getattr(part, "topic_id", b"")):
        return name
    topic = context.broker.topic_by_id(part.topic_id)
    return None if topic is None else topic.name


def split(
    context: Context, parts: Iterable[Any], field: str, is_allowed: Callable[[str], bool]
) -> Steps[tuple[list[Any], list[Any]]]:
    """Return the parts of a request that are allowed, and the others."""

    def may_have(part: Any) -> bool:
        name = name_of(context, part, field)
        # An id that nothing has is no secret.
        return name is None or is_allowed(name)

    return (yield from divided(parts, may_have))


def divided(items: Iterable[_T], is_allowed: Callable[[_T], bool]) -> Steps[tuple[list[_T], list[_T]]]:
    """Return the items that are allowed, and the others."""
    allowed: list[_T] = []
    denied: list[_T] = []
    pace = Pace()
    for item in items:
        (allowed if is_allowed(item) else denied).append(item)
        if pace.is_due(PIECES_OF_CHECK):
            yield
    return allowed, denied


def on_each(action: Action, response: type, parts: Parts) -> Guard:
    """Return the guard of an API that needs a right on each resource of a list."""

    def check(context: Context, request: Any, handle: Handle) -> Steps[Answer]:
        access = access_of(context)
        allowed, denied = yield from split(
            context, getattr(request, parts.field), parts.name, lambda name: access.allows(action, name)
        )
        if not denied:
            return handle(context, request)
        refusals = yield from parts.refuse_all(response, denied, action)
        answer = handle(context, replace(request, **{parts.field: allowed}))
        return (yield from then(answer, lambda done: with_more(done, parts.answers, refusals)))

    return Guard((action,), check)


def only(response: Any, field: str, is_kept: Callable[[Any], bool]) -> Steps[Any]:
    """Return a response with some of the items of ``field``."""
    kept, _ = yield from divided(getattr(response, field), is_kept)
    return replace(response, **{field: kept})


def with_more(response: Any, field: str, more: Sequence[Any]) -> Steps[Any]:
    """Return a response with more items of ``field``; if it failed as a whole, its items have no errors of their own."""
    yield from ()
    if getattr(response, "error_code", 0):
        return response
    return replace(response, **{field: [*getattr(response, field), *more]})
