"""Where the histories of two servers part."""

from __future__ import annotations

import pytest
from stele.cdc.postgres.timelines import Timelines

FIRST = Timelines(1, {})
SECOND = Timelines(2, {1: 0x500})


def test_a_history_file_is_parsed() -> None:
    content = "1\t0/500\tno recovery target specified\n\n# a comment\n2\t1/A0\tbefore 2026\n"
    assert Timelines.parse(3, content) == Timelines(3, {1: 0x500, 2: 0x1_0000_00A0})


@pytest.mark.parametrize(
    ("followed", "now", "lsn"),
    [
        pytest.param(FIRST, FIRST, None, id="the same server"),
        pytest.param(SECOND, SECOND, None, id="the same after a failover"),
        pytest.param(FIRST, SECOND, 0x500, id="a standby was promoted"),
        pytest.param(FIRST, Timelines(3, {1: 0x500, 2: 0x900}), 0x500, id="two failovers, the first of them unseen"),
        pytest.param(SECOND, Timelines(3, {1: 0x500, 2: 0x900}), 0x900, id="the second failover"),
        pytest.param(SECOND, FIRST, 0x500, id="the old primary came back"),
        pytest.param(Timelines(3, {1: 0x500, 2: 0x900}), FIRST, 0x500, id="after two failovers"),
        pytest.param(SECOND, Timelines(2, {1: 0x700}), 0x500, id="two standbys were promoted, each to timeline 2"),
        pytest.param(SECOND, Timelines(3, {1: 0x500}), 0x500, id="two timelines from one place"),
        pytest.param(SECOND, Timelines(3, {1: 0x300, 2: 0x900}), 0x300, id="a timeline 2 of its own"),
    ],
)  # fmt: skip
def test_histories_part_where_the_first_of_them_left(
    followed: Timelines, now: Timelines, lsn: int | None
) -> None:
    assert now.parts_from(followed) == lsn
    assert followed.parts_from(now) == lsn
