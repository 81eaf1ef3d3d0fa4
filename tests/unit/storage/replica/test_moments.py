"""The newest cut that is not after a time is found, also where cuts are damaged; generations have their moments."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from app.storage.replica.chain import CutChain, NoCut, cut_key
from app.storage.replica.cut import CorruptCut
from app.storage.replica.moments import Generation, Moments, shown_time
from app.storage.shared.store.object_store import ObjectNotFound
from tests.support.made_replica import MadeReplica, header_of
from tests.support.model_store import ModelStore

T = TypeVar("T")

CUTS = range(5, 25)


@pytest.fixture
def replica() -> MadeReplica:
    """Cuts 5 to 24: generation 1 up to 9, 2 up to 19, and 3; the moment of each is ten times its number."""
    replica = MadeReplica()
    for sequence in CUTS:
        replica.cut(header_of(sequence, base=5 if sequence > 5 else None, generation=1 + sequence // 10))
    return replica


def look(replica: MadeReplica, work: Callable[[Moments], Coroutine[Any, Any, T]]) -> T:
    async def run() -> T:
        return await work(await Moments.of(CutChain(replica.store)))

    return asyncio.run(run())


def damage(replica: MadeReplica, sequence: int) -> None:
    replica.store.objects[cut_key(sequence)] = b"no cut"


@pytest.mark.parametrize("sequence", CUTS)
def test_finds_the_newest_cut_that_is_not_after_a_time(replica: MadeReplica, sequence: int) -> None:
    for time_ms in (10 * sequence, 10 * sequence + 9):
        assert look(replica, lambda moments, time_ms=time_ms: moments.newest_at(time_ms)) == sequence


def test_a_time_before_the_first_cut_is_refused(replica: MadeReplica) -> None:
    with pytest.raises(
        NoCut, match=r"does not go back to 1970-01-01T00:00:00.049Z: .* 1970-01-01T00:00:00.050Z"
    ):
        look(replica, lambda moments: moments.newest_at(49))


def test_a_time_whose_objects_are_deleted_is_refused(replica: MadeReplica) -> None:
    replica.cut(header_of(24, base=5, generation=3, oldest_ms=120))

    with pytest.raises(NoCut, match=r"the first moment that can be restored is 1970-01-01T00:00:00.120Z"):
        look(replica, lambda moments: moments.newest_at(119))
    assert look(replica, lambda moments: moments.newest_at(120)) == 12


def test_a_bucket_without_cuts_has_no_moments() -> None:
    with pytest.raises(NoCut, match="there is no replica below this URL"):
        look(MadeReplica(), Moments.newest)


@pytest.mark.parametrize("damaged", [*((one,) for one in CUTS), (14, 15), tuple(range(10, 20)), (23, 24)])
def test_a_damaged_cut_hides_no_other(replica: MadeReplica, damaged: tuple[int, ...]) -> None:
    for sequence in damaged:
        damage(replica, sequence)

    for sequence in CUTS:
        if sequence not in damaged:
            time_ms = 10 * sequence
            assert look(replica, lambda moments, time_ms=time_ms: moments.newest_at(time_ms)) == sequence


def test_the_newest_cut_is_not_replaced_by_another_in_silence(replica: MadeReplica) -> None:
    damage(replica, 24)

    for time_ms in (None, 1_000, 231):
        with pytest.raises(
            CorruptCut, match=rf"{cut_key(24)}: .*; the newest cut before it is of .*, 230 in ms"
        ):
            look(replica, lambda moments, time_ms=time_ms: moments.newest_at(time_ms))
    assert look(replica, Moments.newest).sequence == 23


def test_generations_have_their_first_and_last_moments(replica: MadeReplica) -> None:
    assert look(replica, Moments.generations) == [
        Generation(3, 200, 240, 5),
        Generation(2, 100, 190, 10),
        Generation(1, 50, 90, 5),
    ]


def test_what_cannot_be_restored_is_in_no_generation(replica: MadeReplica) -> None:
    replica.cut(header_of(24, base=5, generation=3, oldest_ms=120))

    assert look(replica, Moments.generations) == [Generation(3, 200, 240, 5), Generation(2, 120, 190, 8)]


@pytest.mark.parametrize("base", [0, 24_000_000])
def test_a_base_that_the_chain_cannot_have_is_not_looked_for_at_length(base: int) -> None:
    class Counting(ModelStore):
        asked = 0

        async def get(self, key: str) -> bytes:
            self.asked += 1
            return await super().get(key)

    replica = MadeReplica()
    replica.store = store = Counting()
    replica.cut(header_of(100_000, base=base))

    async def run() -> None:
        with pytest.raises((ObjectNotFound, CorruptCut)):
            await CutChain(store).state_at(100_000)

    asyncio.run(run())
    assert store.asked < 100


def test_a_negative_base_is_refused(replica: MadeReplica) -> None:
    replica.cut(header_of(24, base=-(2**70)))

    with pytest.raises(CorruptCut, match="the cut is damaged"):
        asyncio.run(CutChain(replica.store).state_at(24))


def test_times_outside_the_calendar_are_numbers() -> None:
    assert shown_time(10**18) == str(10**18)
