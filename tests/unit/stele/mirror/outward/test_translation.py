"""Offsets of a copy that does not have those of its source."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from stele.mirror.outward.batches import Outgoing, Run
from stele.mirror.outward.target import new_pairs
from stele.mirror.outward.translation import Translation


def translation(*pairs: tuple[int, int]) -> Translation:
    made = Translation()
    for source, target in pairs:
        made.note(source, target)
    return made


def test_offsets_in_holes_lead_to_the_next_record() -> None:
    # Records 5, 6, 7 at 0, 1, 2; 10, 11 at 3, 4; then the end of a transaction at 5.
    made = translation((5, 0), (10, 3), (12, 6))
    assert [made.target_of(source, 6) for source in range(13)] == [0, 0, 0, 0, 0, 0, 1, 2, 3, 3, 3, 4, 6]
    assert [made.source_of(target) for target in (0, 2, 3, 4, 6)] == [5, 7, 10, 11, 12]


def test_pairs_of_records_that_were_never_written_are_replaced() -> None:
    made = translation((0, 0), (20, 10), (40, 20))
    made.note(15, 10)
    assert made.source_of(12) == 17
    assert made.last_target == 10
    made.cut(9)
    assert (made.last_target, made.source_of(9)) == (0, 9)
    assert Translation().is_empty
    assert Translation().target_of(3, 7) == 7


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4), st.integers(0, 2)), max_size=20),
    st.integers(0, 9),
)
def test_every_offset_is_translated_exactly(steps: list[tuple[int, int, int]], begin: int) -> None:
    """Runs of records with holes before them, and ends of transactions in the target between them."""
    made, where, source, target = Translation(), dict[int, int](), begin, 0
    for hole, count, markers in steps:
        source += hole
        sent = [Outgoing(bytearray(), count, [Run(source, count)])]
        for pair in new_pairs(made, sent, target):
            made.note(*pair)
        for _ in range(count):
            where[source] = target
            source, target = source + 1, target + 1
        if markers:
            # A mirror that begins notes where it goes on.
            made.note(source, target + markers)
            target += markers
    for offset in range(source + 1):
        following = [at for known, at in where.items() if known >= offset]
        at = made.target_of(offset, target)
        # At the record, or at an end of a transaction before it, which no consumer gets.
        assert not [one for one in where.values() if at <= one < (following[0] if following else target)]
        assert at <= (following[0] if following else target)
    for known, at in where.items():
        assert made.source_of(at) == known
