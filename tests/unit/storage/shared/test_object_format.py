"""The footer of an object says what is in it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from app.storage.shared.runs.object_format import MAGIC, ObjectRun, SequenceExtent, footer_bytes
from tests.support.object_footers import read_footer

_SEQUENCES = st.builds(
    SequenceExtent,
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**15 - 1),
    st.integers(0, 2**31 - 1),
    st.integers(1, 2**31 - 1),
)
_RUNS = st.lists(
    st.builds(
        ObjectRun,
        topic_id=st.uuids(),
        partition=st.integers(0, 2**31 - 1),
        position=st.just(len(MAGIC)),
        length=st.integers(0, 1000),
        offset_count=st.integers(1, 2**31 - 1),
        max_timestamp_ms=st.integers(-1, 2**63 - 1),
        crc=st.integers(0, 2**32 - 1),
        base_offset=st.integers(-1, 2**63 - 1),
        sequences=st.lists(_SEQUENCES, max_size=4).map(tuple),
    ),
    max_size=5,
)


@given(_RUNS)
def test_a_footer_is_read_as_it_was_written(runs: list[ObjectRun]) -> None:
    assert read_footer(MAGIC + b"x" * 1000 + footer_bytes(runs)) == runs
