"""Which variants of a test `make test` runs."""

from __future__ import annotations

import pytest

from tests.support.variants import long_but, stays


@pytest.mark.parametrize("nth", range(1, 9))
def test_one_in_n_cases_stays_and_no_value_of_a_parameter_is_left_out(nth: int) -> None:
    numbers = [number for number in range(nth * nth) if stays(number, nth)]
    assert len(numbers) == nth
    assert numbers[0] == 0
    for values in range(1, nth + 1):
        if nth % values == 0:
            assert {number % values for number in numbers} == set(range(values))


def test_all_but_the_named_cases_are_long() -> None:
    cases = long_but(["a", pytest.param(1, id="b"), "c"], "b")
    assert [(case.id, [mark.name for mark in case.marks]) for case in cases] == [
        ("a", ["long"]),
        ("b", []),
        ("c", ["long"]),
    ]


def test_a_case_that_is_not_there_cannot_be_named() -> None:
    with pytest.raises(ValueError, match="no such cases"):
        long_but(["a"], "b")
