"""The table of a connection's life, row by row."""

from __future__ import annotations

from itertools import product

import pytest

from app.tcp.connection_state import TRANSITIONS, Event, IllegalTransition, State, next_state

# State, event, state after; written by hand, so that a change of the table is a change here.
LEGAL = """
OPEN         CLOSE       DRAINING
OPEN         PEER_ENDED  HALF_CLOSED
OPEN         CUT         CLOSED
OPEN         LOST        CLOSED
DRAINING     CLOSE       DRAINING
DRAINING     PEER_ENDED  HALF_CLOSED
DRAINING     ANSWERED    LINGERING
DRAINING     CUT         CLOSED
DRAINING     LOST        CLOSED
HALF_CLOSED  CLOSE       HALF_CLOSED
HALF_CLOSED  ANSWERED    CLOSED
HALF_CLOSED  CUT         CLOSED
HALF_CLOSED  LOST        CLOSED
LINGERING    CLOSE       LINGERING
LINGERING    PEER_ENDED  CLOSED
LINGERING    LINGERED    CLOSED
LINGERING    CUT         CLOSED
LINGERING    LOST        CLOSED
CLOSED       CLOSE       CLOSED
CLOSED       PEER_ENDED  CLOSED
CLOSED       CUT         CLOSED
CLOSED       LOST        CLOSED
"""
ROWS = [tuple(line.split()) for line in LEGAL.strip().splitlines()]
ILLEGAL = sorted(
    {(state.name, event.name) for state, event in product(State, Event)} - {row[:2] for row in ROWS}
)


@pytest.mark.parametrize(("state", "event", "after"), ROWS)
def test_a_legal_event_leads_to_the_state_of_its_row(state: str, event: str, after: str) -> None:
    assert next_state(State[state], Event[event]) is State[after]


@pytest.mark.parametrize(("state", "event"), ILLEGAL)
def test_an_illegal_event_raises_and_names_both(state: str, event: str) -> None:
    with pytest.raises(IllegalTransition, match=f"{event} cannot happen in state {state}"):
        next_state(State[state], Event[event])


def test_nothing_leads_out_of_closed() -> None:
    assert set(TRANSITIONS[State.CLOSED].values()) == {State.CLOSED}


def test_closed_can_be_reached_from_every_state_at_any_time() -> None:
    for state in State:
        for event in (Event.CUT, Event.LOST):
            assert next_state(state, event) is State.CLOSED
