"""The table of the TCP listeners."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from stele.wire.error_codes import ErrorCode

from app import errors
from app.tcp.errors import ERROR_CODES, error_code_of


def leaves(error: type[errors.SteleError]) -> Iterator[type[errors.SteleError]]:
    below = error.__subclasses__()
    if not below:
        yield error
    for one in below:
        yield from leaves(one)


@pytest.mark.parametrize("leaf", list(leaves(errors.SteleError)), ids=lambda leaf: leaf.__name__)
def test_every_leaf_of_the_error_tree_has_a_number(leaf: type[errors.SteleError]) -> None:
    assert leaf in ERROR_CODES


def test_the_table_has_leaves_only_and_no_unspecific_number() -> None:
    assert set(ERROR_CODES) == set(leaves(errors.SteleError))
    assert not {ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR} & set(ERROR_CODES.values())


def test_an_error_outside_the_table_is_an_unknown_server_error() -> None:
    assert error_code_of(errors.SteleError("?")) is ErrorCode.UNKNOWN_SERVER_ERROR
