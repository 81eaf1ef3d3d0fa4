"""What can be restored from a bucket, and whether all of it is there, without a restore."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from ..shared.store.object_store import ConditionalStore
from .chain import CutChain
from .cut import CorruptCut, CutHeader
from .downloads import DamagedPiece, Downloads, PatientStore
from .moments import Generation, Moments
from .restore import RestoreFailed, state_for
from .restore_plan import CatalogTopic, Piece, plan_partitions, plan_stores
from .state import ReplicaState


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A replica: ``newest`` is the header of its newest cut, the rest is what that one has.

    ``generations`` can be restored, the newest first. ``problem`` is why the newest cut cannot be, None if it can; the
    numbers are -1 then.
    """

    newest: CutHeader
    generations: Sequence[Generation]
    topics: int = -1
    partitions: int = -1
    size: int = -1
    problem: str | None = None

    @property
    def oldest_ms(self) -> int:
        """The earliest moment that can be restored."""
        return self.generations[-1].first_ms if self.generations else self.newest.time_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What was read: the cut, objects, and pieces that are damaged."""

    header: CutHeader
    objects: int
    size: int
    damaged: Sequence[DamagedPiece]


async def summarize(store: ConditionalStore) -> Summary:
    """Return what can be restored.

    Raises:
        NoCut: nothing.
        CorruptCut: no cut can be read.
        ObjectStoreError: the store does not answer.
    """
    store = PatientStore(store)
    moments = await Moments.of(CutChain(store))
    newest = await moments.newest()
    generations = await moments.generations()
    summary = Summary(newest=newest, generations=generations)
    try:
        state, _ = await state_for(store, None)
    except CorruptCut as error:
        return dataclasses.replace(summary, problem=str(error))
    return dataclasses.replace(
        summary,
        topics=len({key.topic_id for key in state.partitions}),
        partitions=len(state.partitions),
        size=_size_of(state),
    )


async def verify(
    store: ConditionalStore,
    stores: Collection[str],
    *,
    to_ms: int | None,
    advance: Callable[[int, int], object],
) -> Verified:
    """Read all that a restore of the newest cut not after ``to_ms`` would read, and check it.

    ``stores`` and ``advance`` are those of a restore.

    Raises:
        NoCut: there is no such cut.
        RestoreFailed: the cut itself is damaged.
        ObjectStoreError: the store does not answer.
    """
    store = PatientStore(store)
    try:
        state, _ = await state_for(store, to_ms)
        pieces = [piece for _, found in plan_stores(state, stores) for piece in found]
        pieces += plan_partitions(state, _topics_of(state)).pieces
    except CorruptCut as error:
        raise RestoreFailed(str(error)) from error
    assert state.header is not None
    total = sum(piece.length for piece in pieces)
    done = 0
    counting = threading.Lock()

    def count(piece: Piece) -> None:
        nonlocal done
        with counting:
            done += piece.length
            advance(done, total)

    damaged: list[DamagedPiece] = []
    await Downloads(store, sink=None, verified=count).run(pieces, damaged.append)
    return Verified(
        header=state.header,
        objects=len({piece.object for piece in pieces}),
        size=total,
        damaged=sorted(damaged, key=lambda one: (one.piece.object, one.piece.position)),
    )


def _topics_of(state: ReplicaState) -> list[CatalogTopic]:
    """Return the topics of all partitions; what the catalog says of them is in a store."""
    counts: dict[tuple[str, str], int] = {}
    for key, replica in state.partitions.items():
        topic = (key.topic_id, replica.topic)
        counts[topic] = max(counts.get(topic, 0), key.partition + 1)
    return [CatalogTopic(topic_id, name, count) for (topic_id, name), count in counts.items()]


def _size_of(state: ReplicaState) -> int:
    logs = sum(replica.size for replica in state.partitions.values())
    return logs + sum(store.size for store in state.stores.values())
