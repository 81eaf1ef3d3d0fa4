"""Report the state of the replica in a bucket."""

from __future__ import annotations

from typing import Annotated, TypedDict, get_args

from starlette.requests import Request

from ...storage.replica.status import ReplicaPhase
from ..guarded_route import GuardedRoute
from ..routing import NO_STORE, Routes
from ..schemas import Shown, one_of
from ..state import api_state

route = Routes("broker", GuardedRoute)


class ReplicaCut(TypedDict):
    sequence: int
    at: int


class ReplicaCounts(TypedDict):
    cuts: int
    objects: int
    uploaded_bytes: int
    deleted_objects: int
    failed_requests: int


class Replica(TypedDict):
    state: Annotated[str, one_of("ReplicaState", "off", *get_args(ReplicaPhase))]
    url: str | None
    interval_ms: int
    retention_ms: int
    generation: int | None
    newest_cut: Annotated[ReplicaCut | None, Shown("null before the bucket has answered, or without a cut")]
    lag_seconds: Annotated[float | None, Shown("age of the oldest change that the bucket may lack")]
    oldest_restorable_at: Annotated[int | None, Shown("null until it is known")]
    replica_bytes: Annotated[int | None, Shown("size of the objects that a restore of the newest cut reads")]
    retained_bytes: Annotated[
        int | None, Shown("size of the objects that only restores to earlier moments read")
    ]
    counts: Annotated[ReplicaCounts | None, Shown("since the start of the broker")]
    problem: str | None


_EXAMPLE = (
    '{"state":"replicating","url":"s3://backups/stele","interval_ms":1000,"retention_ms":86400000,"generation":3,'
    '"newest_cut":{"sequence":41207,"at":1763664052224},"lag_seconds":0.412,"oldest_restorable_at":1763577652101,'
    '"replica_bytes":73819201,"retained_bytes":9120455,"counts":{"cuts":811,"objects":1630,'
    '"uploaded_bytes":18250123,"deleted_objects":544,"failed_requests":0},"problem":null}'
)


@route("GET /v1/replica", "Get the state of the replica", headers=NO_STORE, example=_EXAMPLE)
async def get_replica(request: Request) -> Replica:
    """Return how far the replica in the bucket has come: newest cut, lag, and how far back a restore can go.

    ``state`` is ``off`` unless the setting ``replicate_to`` names a bucket; most other fields are null then.

    ``starting``: the bucket is compared with the data directory. ``copying``: the first cut of this start is being
    written. ``replicating``: cuts are written. ``failing``: requests to the bucket fail and are repeated.
    ``overtaken``: another broker writes the replica, and this one no longer does. ``stopped``: an error ended the
    replication. ``problem`` has the reason.
    """
    state = api_state(request)
    settings = state.settings
    if state.replica is None:
        return {
            "state": "off",
            "url": None,
            "interval_ms": settings.replica_interval_ms,
            "retention_ms": settings.replica_retention_ms,
            "generation": None,
            "newest_cut": None,
            "lag_seconds": None,
            "oldest_restorable_at": None,
            "replica_bytes": None,
            "retained_bytes": None,
            "counts": None,
            "problem": None,
        }
    status = state.replica.status
    return {
        "state": status.phase,
        "url": status.url,
        "interval_ms": settings.replica_interval_ms,
        "retention_ms": settings.replica_retention_ms,
        "generation": status.generation if status.generation >= 0 else None,
        "newest_cut": {"sequence": status.sequence, "at": status.cut_ms} if status.sequence >= 0 else None,
        "lag_seconds": status.lag_ms / 1000,
        "oldest_restorable_at": status.oldest_ms if status.oldest_ms >= 0 else None,
        "replica_bytes": status.replica_bytes,
        "retained_bytes": status.retained_bytes,
        "counts": {
            "cuts": status.cuts,
            "objects": status.objects,
            "uploaded_bytes": status.uploaded_bytes,
            "deleted_objects": status.deleted_objects,
            "failed_requests": status.failed_requests,
        },
        "problem": status.problem,
    }
