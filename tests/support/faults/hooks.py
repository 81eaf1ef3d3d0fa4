"""What a broker under test does faster than those of users; run in its process before it starts.

``STELE_``-less variables of the environment carry the values, because the broker would refuse unknown settings.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

# The variable that names ``install`` to the fork server, and what ``install`` reads.
HOOK = "TEST_BROKER_HOOK"
PEERS = "TEST_BROKER_PEERS"
DEAD = "TEST_BROKER_DEAD_MS"
INSTALL = "tests.support.faults.hooks:install"

# A dead broker's objects are garbage after SILENT_MS, and dead bytes are deleted DEAD_MS later.
SILENT_MS = 15_000
# Unless the environment says how many.
DEAD_MS = 4_000


def install() -> None:
    """Shorten the times of the upkeep and of timeouts, and reach each other broker through a link."""
    from app.cluster.postgres import membership as postgres_membership
    from app.storage.shared import committer, engine, upkeep
    from app.storage.shared.store import obstore

    short = partial(
        upkeep.UpkeepOptions,
        merge_interval_ms=700,
        sweep_interval_ms=1_500,
        heartbeat_interval_ms=1_000,
        merge_min_bytes=60_000,
        merge_min_age_ms=5_000,
        merged_bytes_max=400_000,
        merge_claim_ms=5_000,
        dead_ms=int(os.environ.pop(DEAD, DEAD_MS)),
        silent_ms=SILENT_MS,
    )
    commit = committer.CommitOptions(upload_timeout_ms=6_000, commit_timeout_ms=6_000)
    # Set by name: the types of a class and of a partial call differ.
    modules: list[tuple[Any, str, Any]] = [
        (upkeep, "UpkeepOptions", short),
        (engine, "SharedOptions", partial(engine.SharedOptions, commit=commit)),
        (obstore, "_REQUEST_TIMEOUT", timedelta(seconds=3)),
        (obstore, "_CONNECT_TIMEOUT", timedelta(seconds=2)),
    ]
    for module, name, value in modules:
        setattr(module, name, value)
    ports: dict[int, int] = {
        int(number): port for number, port in json.loads(os.environ.pop(PEERS, "{}")).items()
    }
    original = postgres_membership.PostgresMembership.look

    def look(self: Any) -> Any:
        state = original(self)
        members = tuple(_through_link(member, ports) for member in state.members)
        return replace(state, members=members)

    setattr(postgres_membership.PostgresMembership, "look", look)  # noqa: B010 - the method is replaced


def _through_link(member: Any, ports: dict[int, int]) -> Any:
    if member.broker_id not in ports:
        return member
    endpoints = dict(member.endpoints)
    endpoints["http"] = endpoints["http"]._replace(port=ports[member.broker_id])
    return replace(member, endpoints=endpoints)
