"""An error that a client is answered with holds nothing of its request."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator

import pytest

from app.api.errors import problem_of
from app.errors import BatchTooLarge, InvalidBatch, SteleError
from app.tcp.errors import error_code_of


class Value(bytearray):
    """What a request holds; it may be large."""


@pytest.fixture(autouse=True)
def no_collections() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def refuse(held: list[weakref.ref[Value]]) -> None:
    value = Value(10)
    held.append(weakref.ref(value))
    raise BatchTooLarge(len(value), limit=1)


def refuse_for_a_reason(held: list[weakref.ref[Value]]) -> None:
    try:
        refuse(held)
    except BatchTooLarge as error:
        raise InvalidBatch("too large") from error


def refuse_after_another(held: list[weakref.ref[Value]]) -> None:
    try:
        refuse_for_a_reason(held)
    except InvalidBatch:
        refuse(held)


@pytest.mark.parametrize("answer", [problem_of, error_code_of])
@pytest.mark.parametrize("request_of", [refuse, refuse_for_a_reason, refuse_after_another])
def test_an_error_that_is_answered_holds_no_value_of_its_request(
    answer: Callable[[SteleError], object], request_of: Callable[[list[weakref.ref[Value]]], None]
) -> None:
    held: list[weakref.ref[Value]] = []

    def handle() -> None:
        try:
            request_of(held)
        except SteleError as error:
            # A cycle: the frame is one of those in the traceback.
            kept = error
            answer(kept)

    handle()
    assert held
    assert [value() for value in held] == [None] * len(held)
