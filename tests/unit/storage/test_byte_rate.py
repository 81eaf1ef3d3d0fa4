"""The throttle: a rate on average, a second's worth at once."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.storage.disk.byte_rate import ByteRate


def test_a_second_of_bytes_passes_at_once_and_the_rest_waits() -> None:
    rate = ByteRate(1_000, now_ms=5)
    assert rate.delay_ms(1_000, now_ms=5) == 0
    assert rate.delay_ms(500, now_ms=5) == 500
    assert rate.delay_ms(0, now_ms=505) == 0
    assert rate.delay_ms(1, now_ms=505) == 1


def test_what_was_not_used_is_kept_for_one_second_only() -> None:
    rate = ByteRate(1_000, now_ms=0)
    assert rate.delay_ms(1_001, now_ms=3_600_000) == 1


def test_a_clock_that_goes_back_gives_nothing() -> None:
    rate = ByteRate(1_000, now_ms=10_000)
    assert rate.delay_ms(1_000, now_ms=10_000) == 0
    assert rate.delay_ms(100, now_ms=0) == 100
    assert rate.delay_ms(0, now_ms=10_000) == 100


@pytest.mark.parametrize("bytes_per_s", [0, -1])
def test_a_rate_that_lets_nothing_through_is_refused(bytes_per_s: int) -> None:
    with pytest.raises(ValueError, match="lets nothing through"):
        ByteRate(bytes_per_s, now_ms=0)


@settings(deadline=None)
@given(
    st.integers(1, 10_000_000),
    st.lists(st.tuples(st.integers(0, 1_000_000), st.integers(0, 500)), max_size=50),
)
def test_a_pass_that_waits_as_long_as_it_is_asked_to_keeps_the_rate(
    bytes_per_s: int, work: list[tuple[int, int]]
) -> None:
    rate, now_ms, total = ByteRate(bytes_per_s, now_ms=0), 0, 0
    for size, idle_ms in work:
        now_ms += idle_ms
        total += size
        now_ms += rate.delay_ms(size, now_ms=now_ms)
        # A rounding error of floating point numbers, and a second at once.
        assert total <= bytes_per_s * (now_ms / 1000 + 1) + 1
