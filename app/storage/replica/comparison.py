"""Compares a data directory with what the bucket has, at a start."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from ...work_budget import visited
from ..logs.log import DiskLog
from .cut import CutHeader
from .marks import key_of
from .segment_uploads import SegmentUploads
from .state import ReplicaState

logger = logging.getLogger(__name__)


class ReplicaOfAnother(Exception):
    """The bucket has the replica of another data directory."""


def check_identity(newest: CutHeader, cluster_id: str, url: str) -> None:
    """Raise ``ReplicaOfAnother`` unless the newest cut is one of this directory."""
    if newest.cluster_id != cluster_id:
        raise ReplicaOfAnother(
            f"{url} has the replica of another data directory (cluster id {newest.cluster_id}, this one "
            f"is {cluster_id}). To go on with that one, restore it: stele restore URL --data-dir DIR, or stele "
            "serve --restore-if-empty; to replicate this one, name another prefix"
        )


async def check_remote(state: ReplicaState, logs: Iterable[DiskLog], url: str) -> None:
    """Check that the bucket has what is on no disk.

    Raises:
        ReplicaOfAnother: it has not.
    """
    async for log in visited(logs):
        for segment in log.segments[: log.local_start()]:
            remote = segment.remote
            if remote is not None and not all(state.is_used(run.object) for run in remote.known.runs):
                raise ReplicaOfAnother(
                    f"segments of {log.directory.name} are in the bucket alone, and not in {url}: copy all objects of the "
                    "earlier bucket to this one, then start the broker again"
                )


async def recognize_all(
    state: ReplicaState, logs: Iterable[DiskLog], uploads: SegmentUploads, *, url: str, retention_ms: int
) -> None:
    """Find out which bytes of ``logs`` the bucket has.

    Raises:
        OSError: the disk failed.
    """
    missing = 0
    for log in logs:
        replica = state.partitions.get(key_of(log))
        if replica is not None:
            missing += max(0, replica.end_offset - log.log_end_offset)
            await uploads.recognize(log, replica)
    if missing:
        logger.error(
            "the replica %s has %d records that this data directory lacks: it was perhaps put back to an earlier state. "
            "They can be restored for as long as cuts are kept (%d hours)",
            url,
            missing,
            retention_ms // 3_600_000,
        )
