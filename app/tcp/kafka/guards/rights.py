"""Guards that many APIs share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ....security.acl import CLUSTER_NAME, Action
from ..context import Answer, Context
from .refusals import access_of, code_of, item_type, refusal, refused, then, with_code

Handle = Callable[[Context, Any], Answer]
Check = Callable[[Context, Any, Handle], Answer]


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


def on_cluster(action: Action, response: type, refuse: Callable[[Any], Any] | None = None) -> Guard:
    """Return the guard of an API that needs one right on the cluster.

    ``refuse`` makes the response to a request that is refused, for APIs whose errors
    are in parts of the response.
    """

    def check(context: Context, request: Any, handle: Handle) -> Answer:
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

    def refuse(self, response: type, part: Any, code: int) -> Any:
        """Return the item of the response that refuses ``part`` of the request."""
        item = item_type(response, self.answers)
        known: dict[str, Any] = {
            self.answer_name: getattr(part, self.name) if self.name else part,
        }
        if getattr(part, "topic_id", None) is not None:
            known["topic_id"] = part.topic_id
        if not self.answer_partitions:
            return with_code(item, code, **known)
        inner = item_type(item, self.answer_partitions)
        known[self.answer_partitions] = [
            with_code(
                inner,
                code,
                **{self.answer_index: getattr(partition, self.index) if self.index else partition},
            )
            for partition in getattr(part, self.partitions)
        ]
        return refusal(item, **known)


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
) -> tuple[list[Any], list[Any]]:
    """Return the parts of a request that are allowed, and the others."""
    allowed: list[Any] = []
    denied: list[Any] = []
    for part in parts:
        name = name_of(context, part, field)
        # An id that nothing has is no secret.
        (allowed if name is None or is_allowed(name) else denied).append(part)
    return allowed, denied


def on_each(action: Action, response: type, parts: Parts) -> Guard:
    """Return the guard of an API that needs a right on each resource of a list."""

    def check(context: Context, request: Any, handle: Handle) -> Answer:
        access = access_of(context)
        allowed, denied = split(
            context, getattr(request, parts.field), parts.name, lambda name: access.allows(action, name)
        )
        if not denied:
            return handle(context, request)
        answer = handle(context, replace(request, **{parts.field: allowed}))
        refusals = [parts.refuse(response, part, code_of(action)) for part in denied]
        return then(answer, lambda done: with_more(done, parts.answers, refusals))

    return Guard((action,), check)


def with_more(response: Any, field: str, more: Sequence[Any]) -> Any:
    return replace(response, **{field: [*getattr(response, field), *more]})
