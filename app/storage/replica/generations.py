"""A start takes the next generation of a chain, before it uploads anything."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..shared.store.object_store import ObjectNotFound
from .bucket import Bucket
from .chain import CutChain, Overtaken
from .cut import CutHeader, encode_cut


async def take_generation(
    bucket: Bucket, chain: CutChain, claim_of: Callable[[CutHeader], CutHeader]
) -> Sequence[int]:
    """Write a cut that changes nothing; return all cuts, none if there were none.

    ``claim_of`` returns its header, given that of the newest cut. Once it is written, no broker that began earlier writes
    a cut, nor does one that has ended and whose last request is late. What is uploaded comes after it, so whoever holds
    the newest generation may delete what is in the bucket without need.
    """
    while True:
        sequences = await bucket.persist("listing the cuts", chain.sequences)
        if not sequences:
            return []
        try:
            return [*sequences, await _follow(bucket, chain, sequences[-1], claim_of)]
        except (ObjectNotFound, Overtaken):
            # The newest was deleted meanwhile, or followed by a broker that still writes, or by another start.
            continue


async def _follow(
    bucket: Bucket, chain: CutChain, newest: int, claim_of: Callable[[CutHeader], CutHeader]
) -> int:
    cut = await bucket.persist("reading the newest cut", lambda: chain.read(newest))
    claim = claim_of(cut.header)
    data = encode_cut(claim, ())
    await bucket.persist(
        "taking the next generation", lambda: chain.append(claim.sequence, data, base=claim.base)
    )
    return claim.sequence
