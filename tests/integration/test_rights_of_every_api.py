"""Each Kafka API that declares one right, over a socket: every right but that one, and that one alone.

Requests are made of their declaration, so that a new API with one right is tried, too. Redpanda left an API
unchecked (CVE-2023-50976), and Kafka asked for a wrong right (CVE-2026-41115).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, cast, get_args, get_origin, get_type_hints

from stele.wire.kafka.api import Api
from stele.wire.kafka.fetch import FETCH_API
from stele.wire.kafka.transactions import LIST_TRANSACTIONS_API

from app.tcp.kafka.apis import SERVED
from app.tcp.kafka.guards.refusals import refusal
from tests.support.acls import authorizer_over, replace_rules
from tests.support.kafka_peer import KafkaPeer
from tests.support.listeners import listeners
from tests.support.rights import GROUP, REFUSAL_CODES, TOPIC, TRANSACTIONAL_ID, all_but, code_of, only

NAMES = {"group_id": GROUP, "group": GROUP, "transactional_id": TRANSACTIONAL_ID}
ITEMS = {"groups": GROUP, "group_ids": GROUP, "groups_names": "unused"}
# Not refused but left out of a list, which other tests look at.
FILTERED = {LIST_TRANSACTIONS_API.key}
# The last version that names topics, instead of their ids.
VERSIONS = {FETCH_API.key: 12}
ONE_RIGHT = [key for key, row in SERVED.items() if len(row.guard.rights) == 1 and key not in FILTERED]


def sample(kind: Any) -> Any:
    """Return a message of ``kind`` with one item in each list, and names that exist."""
    known: dict[str, Any] = {}
    hints = get_type_hints(kind, vars(sys.modules[kind.__module__]), include_extras=True)
    for field in fields(kind):
        hint = hints[field.name]
        if get_args(hint)[1:] == ("rows",):
            (hint, _) = get_args(hint)
        has_default = field.default is not MISSING or field.default_factory is not MISSING
        if get_origin(hint) is Sequence and not has_default:
            (item,) = get_args(hint)
            if is_dataclass(item):
                known[field.name] = [sample(item)]
            elif item is str:
                known[field.name] = [ITEMS.get(field.name, TOPIC)]
            else:
                known[field.name] = [0]
        elif hint is str or hint == str | None:
            if field.name in NAMES:
                known[field.name] = NAMES[field.name]
            elif field.name in ("topic", "name", "topic_name"):
                known[field.name] = TOPIC
    return refusal(kind, **known)


def codes_in(message: Any) -> Iterator[int]:
    """Yield the error codes of a response and of all its parts."""
    if is_dataclass(message):
        for field in fields(message):
            value = getattr(message, field.name)
            if field.name.endswith("error_code"):
                yield value
            yield from codes_in(value)
    elif isinstance(message, list | tuple):
        for item in cast("Sequence[Any]", message):
            yield from codes_in(item)


def ask(peer: KafkaPeer, api: Api) -> set[int]:
    return set(codes_in(peer.call(sample(api.request), VERSIONS.get(api.key, api.versions[1]))))


async def test_an_api_is_refused_without_its_right_and_allowed_with_it_alone(tmp_path: Path) -> None:
    authorizer = await authorizer_over()
    wrong: list[str] = []
    async with listeners(tmp_path, authorizer=authorizer) as at:
        await at.broker.create_topic(TOPIC)
        for key in ONE_RIGHT:
            api, rights = SERVED[key].api, SERVED[key].guard.rights
            (right,) = rights
            for acls, expected in ((all_but(rights), {code_of(right)}), (only(rights), set[int]())):
                await replace_rules(authorizer, acls)

                def asked(api: Api = api) -> set[int]:
                    with KafkaPeer(at) as peer:
                        return ask(peer, api)

                try:
                    found = await asyncio.to_thread(asked) & REFUSAL_CODES
                except (ConnectionError, ValueError, TypeError) as error:
                    wrong.append(f"{api.name}: {error!r}")
                    continue
                if found != expected:
                    wrong.append(f"{api.name} with {len(acls)} rules: {found}, not {expected}")
    assert wrong == []
