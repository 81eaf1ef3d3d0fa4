"""The life of a connection as a table: state × event → state.

::

    OPEN ──────── CLOSE ────────▶ DRAINING ── ANSWERED ──▶ LINGERING ── PEER_ENDED, LINGERED ──▶ CLOSED
      │                              │                                                           ▲
      └───── PEER_ENDED ─────▶ HALF_CLOSED ◀── PEER_ENDED                                        │
                                     └──────────────────── ANSWERED ─────────────────────────────┘

CUT and LOST lead from every state to CLOSED. An event that is not in the row of
a state cannot happen there; it raises ``IllegalTransition``.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto


class State(Enum):
    OPEN = auto()
    """Requests are received and answered."""
    DRAINING = auto()
    """Nothing more is read. The requests received so far are answered."""
    HALF_CLOSED = auto()
    """The peer has shut down its writing side. The requests received so far are answered."""
    LINGERING = auto()
    """Everything is answered and our writing side is shut down. What the peer still sends is dropped."""
    CLOSED = auto()
    """The transport is closing or gone."""


class Event(Enum):
    CLOSE = auto()
    """The broker wants to end the connection once it has answered what it received."""
    PEER_ENDED = auto()
    """The peer has shut down its writing side."""
    ANSWERED = auto()
    """The last response has been handed to the transport, and no request is waiting."""
    LINGERED = auto()
    """The peer has been quiet, or has sent for too long, since our writing side was shut down."""
    CUT = auto()
    """The broker drops the connection and whatever was not sent."""
    LOST = auto()
    """The transport reports that the connection is gone."""


class IllegalTransition(RuntimeError):
    """An event came in a state in which it cannot happen: a bug in the caller."""

    def __init__(self, state: State, event: Event) -> None:
        super().__init__(f"connection event {event.name} cannot happen in state {state.name}")
        self.state = state
        self.event = event


# CLOSE may come in any state: a shutdown and a late failure know nothing of the state.
TRANSITIONS: Mapping[State, Mapping[Event, State]] = {
    State.OPEN: {
        Event.CLOSE: State.DRAINING,
        Event.PEER_ENDED: State.HALF_CLOSED,
        Event.CUT: State.CLOSED,
        Event.LOST: State.CLOSED,
    },
    State.DRAINING: {
        Event.CLOSE: State.DRAINING,
        Event.PEER_ENDED: State.HALF_CLOSED,
        Event.ANSWERED: State.LINGERING,
        Event.CUT: State.CLOSED,
        Event.LOST: State.CLOSED,
    },
    State.HALF_CLOSED: {
        Event.CLOSE: State.HALF_CLOSED,
        Event.ANSWERED: State.CLOSED,
        Event.CUT: State.CLOSED,
        Event.LOST: State.CLOSED,
    },
    State.LINGERING: {
        Event.CLOSE: State.LINGERING,
        Event.PEER_ENDED: State.CLOSED,
        Event.LINGERED: State.CLOSED,
        Event.CUT: State.CLOSED,
        Event.LOST: State.CLOSED,
    },
    State.CLOSED: {
        Event.CLOSE: State.CLOSED,
        # The loop may have read the end of the stream before the transport was closed.
        Event.PEER_ENDED: State.CLOSED,
        Event.CUT: State.CLOSED,
        Event.LOST: State.CLOSED,
    },
}


def next_state(state: State, event: Event) -> State:
    """Return the state after ``event``.

    Raises:
        IllegalTransition: ``event`` cannot happen in ``state``.
    """
    after = TRANSITIONS[state].get(event)
    if after is None:
        raise IllegalTransition(state, event)
    return after
