"""What a request needs of rights: how tests take each away, grant no others, and see that a right was missing."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from app.security.acl import (
    CLUSTER_NAME,
    OPERATIONS_OF,
    Acl,
    Action,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)

# The topic and the ids that requests of these tests are about, and a topic that is created by them.
TOPIC, GROUP, TRANSACTIONAL_ID, NEW_TOPIC = "t", "g", "x", "new"
# Rights that stand for each other, such as CREATE on the cluster and on the topic.
Rights = tuple[Action, ...]
# The places in the response, separated by spaces, that report a missing right, or whether a response leaves out
# what the client has no right to.
Outcome = str | Callable[[Any], bool]
Needs = Mapping[Rights, Outcome]
# The place of a refusal, and its error code.
Refusal = tuple[str, int]

_CODES = {
    ResourceType.TOPIC: 29,
    ResourceType.GROUP: 30,
    ResourceType.TRANSACTIONAL_ID: 53,
    ResourceType.CLUSTER: 31,
}
REFUSAL_CODES = frozenset(_CODES.values())


def code_of(right: Action) -> int:
    """Return the error code of a request without ``right``."""
    return _CODES[right.resource_type]


def rule(action: Action, permission: Permission) -> Acl:
    """Return a rule for every client and every resource of the type."""
    is_cluster = action.resource_type is ResourceType.CLUSTER
    return Acl(
        resource_type=action.resource_type,
        resource_name=CLUSTER_NAME if is_cluster else "*",
        pattern_type=PatternType.LITERAL,
        principal="User:ANONYMOUS",
        operation=action.operation,
        permission=permission,
    )


EVERYTHING = [rule(Action(Operation.ALL, kind), Permission.ALLOW) for kind in OPERATIONS_OF]


def all_but(rights: Rights) -> list[Acl]:
    return [*EVERYTHING, *(rule(right, Permission.DENY) for right in rights)]


def only(rights: Rights) -> list[Acl]:
    return [rule(right, Permission.ALLOW) for right in rights]


async def check_needs(
    needs: Needs,
    answer: Callable[[Sequence[Acl]], Awaitable[Any]],
    refusals_in: Callable[[Any], set[Refusal]],
    *,
    code: Callable[[Action], int] = code_of,
) -> None:
    """Check that a request needs each of its rights, and no others.

    ``answer`` returns the response to a client with these rules, in which ``refusals_in`` finds the places and
    the codes of missing rights.
    """
    for rights, outcome in needs.items():
        found = await answer(all_but(rights))
        if isinstance(outcome, str):
            assert refusals_in(found) == {(place, code(rights[0])) for place in outcome.split()}, (
                rights,
                found,
            )
        else:
            assert (outcome(found), refusals_in(found)) == (True, set()), (rights, found)
    for chosen in itertools.product(*needs):
        found = await answer(only(chosen))
        assert refusals_in(found) == set(), (chosen, found)
        assert not any(outcome(found) for outcome in needs.values() if not isinstance(outcome, str)), chosen
