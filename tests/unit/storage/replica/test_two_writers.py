"""Of two brokers that write cuts below one URL, one is overtaken, however long it was paused."""

from __future__ import annotations

import pytest

from app.storage.replica.chain import CutChain, NotConditional, Overtaken
from app.storage.shared.store.object_store import Buffer
from tests.support.model_store import ModelStore


async def test_the_second_of_two_cuts_in_one_place_is_overtaken() -> None:
    store = ModelStore()
    await CutChain(store).append(0, b"base")
    await CutChain(store).append(1, b"of one", base=0)
    with pytest.raises(Overtaken, match="another broker has written cut 1"):
        await CutChain(store).append(1, b"of the other", base=0)


class _Replacing(ModelStore):
    """A store that takes no notice of ``If-None-Match``."""

    async def create(self, key: str, data: Buffer) -> bool:
        self.objects[key] = bytes(data)
        return True


async def test_a_store_is_tried_before_it_is_relied_on() -> None:
    store = ModelStore()
    for _ in range(2):
        # Its answer may have been lost.
        await CutChain(store).check_conditional_writes()
    with pytest.raises(NotConditional, match="use a store that has conditional writes"):
        await CutChain(_Replacing()).check_conditional_writes()


async def test_a_cut_may_be_repeated() -> None:
    chain = CutChain(ModelStore())
    await chain.append(0, b"base")
    for _ in range(2):
        await chain.append(1, b"the same", base=0)
    assert await chain.sequences() == [0, 1]


async def test_a_broker_that_was_paused_until_its_place_is_free_again_is_overtaken() -> None:
    """The other broker has gone on for longer than it keeps cuts, so the place that it took is empty."""
    store = ModelStore()
    paused, other = CutChain(store), CutChain(store)
    await paused.append(0, b"base")
    await other.append(1, b"another base", base=0)
    await other.append(2, b"", base=1)
    await other.append(3, b"one more base", base=1)
    await other.delete([0, 1, 2])
    with pytest.raises(Overtaken, match="cut 0, on which cut 1 builds, is gone"):
        await paused.append(1, b"after the pause", base=0)
    # Nor does it pass with the next one.
    with pytest.raises(Overtaken):
        await paused.append(2, b"later", base=0)
    await other.append(4, b"goes on", base=3)
