"""Share sessions: one per member, with an epoch per request, and gone with their connection (KIP-932)."""

from __future__ import annotations

from stele.wire.error_codes import ErrorCode as E

from app.tcp.kafka.sessions.fetch_sessions import FINAL_EPOCH
from app.tcp.kafka.sessions.share_sessions import (
    ClientConnection,
    SharedPartition,
    ShareSession,
    ShareSessions,
)

ONE, TWO, THREE = (SharedPartition(bytes(16), number) for number in range(3))


def here(number: int) -> ClientConnection:
    return ClientConnection(number=number)


def begun(
    sessions: ShareSessions, member: str = "m", connection: ClientConnection | None = None
) -> ShareSession:
    session = sessions.begin("g", member, connection or here(1))
    assert isinstance(session, ShareSession)
    return session


def test_each_request_has_the_next_epoch() -> None:
    sessions = ShareSessions()
    session = begun(sessions)
    assert [sessions.take("g", "m", epoch) for epoch in (1, 2, 3)] == [session] * 3
    assert sessions.take("g", "m", 3) is E.INVALID_SHARE_SESSION_EPOCH
    assert sessions.take("g", "m", 0) is E.INVALID_SHARE_SESSION_EPOCH
    assert sessions.take("g", "m", 4) is session


def test_after_the_largest_epoch_comes_1() -> None:
    sessions = ShareSessions()
    session = begun(sessions)
    session.epoch = 2**31 - 1
    assert sessions.take("g", "m", 2**31 - 1) is session
    assert sessions.take("g", "m", 1) is session


def test_the_final_epoch_ends_the_session_whatever_epoch_was_next() -> None:
    sessions = ShareSessions()
    session = begun(sessions)
    assert sessions.take("g", "m", FINAL_EPOCH) is session
    assert sessions.take("g", "m", FINAL_EPOCH) is E.SHARE_SESSION_NOT_FOUND
    assert len(sessions) == 0


def test_a_session_of_another_group_or_member_is_not_found() -> None:
    sessions = ShareSessions()
    begun(sessions)
    assert sessions.take("h", "m", 1) is E.SHARE_SESSION_NOT_FOUND
    assert sessions.take("g", "n", 1) is E.SHARE_SESSION_NOT_FOUND


def test_a_new_session_replaces_the_one_of_the_member() -> None:
    sessions = ShareSessions(sessions_max=1)
    begun(sessions, connection=here(1))
    second = begun(sessions, connection=here(2))
    assert sessions.lost(here(1)) == []
    assert sessions.take("g", "m", 1) is second


def test_the_number_of_sessions_is_bounded() -> None:
    sessions = ShareSessions(sessions_max=2)
    begun(sessions, "a")
    begun(sessions, "b")
    assert sessions.begin("g", "c", here(1)) is E.SHARE_SESSION_LIMIT_REACHED
    sessions.take("g", "a", FINAL_EPOCH)
    begun(sessions, "c")


def test_a_connection_takes_its_sessions_along_and_no_others() -> None:
    sessions = ShareSessions()
    mine = {begun(sessions, "a", here(1)), begun(sessions, "b", here(1))}
    other = begun(sessions, "c", here(2))
    assert set(sessions.lost(here(1))) == mine
    assert sessions.lost(here(1)) == []
    assert sessions.take("g", "a", 1) is E.SHARE_SESSION_NOT_FOUND
    assert sessions.take("g", "c", 1) is other


def test_partitions_come_first_in_turn() -> None:
    session = begun(ShareSessions())
    for partition in (ONE, TWO, THREE):
        session.add(partition)
    assert [session.in_turn()[0] for _ in range(4)] == [ONE, TWO, THREE, ONE]
    session.forget(TWO)
    session.forget(TWO)
    assert sorted(session.in_turn()) == [ONE, THREE]


def test_a_member_has_a_session_with_each_broker_that_it_reads_from() -> None:
    sessions = ShareSessions()
    first = begun(sessions, connection=ClientConnection("x", 1))
    second = begun(sessions, connection=ClientConnection("y", 1))
    own = begun(sessions, connection=ClientConnection("", 1))
    assert [sessions.take("g", "m", 1, broker=broker) for broker in ("x", "y", "")] == [first, second, own]
    assert sessions.lost(ClientConnection("x", 1)) == [first]
    assert sessions.is_gone(first)
    assert not sessions.is_gone(second)
    assert sessions.take("g", "m", 2, broker="x") is E.SHARE_SESSION_NOT_FOUND
    assert sessions.keep_brokers({"x"}) == [second]
    assert sessions.has_member("g", "m")
    assert sessions.take("g", "m", FINAL_EPOCH) is own
    assert not sessions.has_member("g", "m")
    assert len(sessions) == 0


def test_a_session_that_was_replaced_is_not_gone() -> None:
    sessions = ShareSessions()
    first = begun(sessions)
    begun(sessions, connection=here(2))
    assert not sessions.is_gone(first), "what the member holds may be that of the new one"
    sessions.lost(here(2))
    assert sessions.is_gone(first)


def test_sessions_of_groups_that_are_not_served_make_room() -> None:
    sessions = ShareSessions(sessions_max=1)
    begun(sessions)
    sessions.keep_groups(lambda group: group == "g")
    assert sessions.begin("h", "m", here(1)) is E.SHARE_SESSION_LIMIT_REACHED
    sessions.keep_groups(lambda group: group == "h")
    assert isinstance(sessions.begin("h", "m", here(1)), ShareSession)
