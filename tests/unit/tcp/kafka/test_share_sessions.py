"""Share sessions: one per member, with an epoch per request, and gone with their connection (KIP-932)."""

from __future__ import annotations

from stele.wire.error_codes import ErrorCode as E

from app.tcp.kafka.fetch_sessions import FINAL_EPOCH
from app.tcp.kafka.share_sessions import SharedPartition, ShareSession, ShareSessions

ONE, TWO, THREE = (SharedPartition(bytes(16), number) for number in range(3))


def begun(sessions: ShareSessions, member: str = "m", connection: int = 1) -> ShareSession:
    session = sessions.begin("g", member, connection)
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
    begun(sessions, connection=1)
    second = begun(sessions, connection=2)
    assert sessions.lost(1) == []
    assert sessions.take("g", "m", 1) is second


def test_the_number_of_sessions_is_bounded() -> None:
    sessions = ShareSessions(sessions_max=2)
    begun(sessions, "a")
    begun(sessions, "b")
    assert sessions.begin("g", "c", 1) is E.SHARE_SESSION_LIMIT_REACHED
    sessions.take("g", "a", FINAL_EPOCH)
    begun(sessions, "c")


def test_a_connection_takes_its_sessions_along_and_no_others() -> None:
    sessions = ShareSessions()
    mine = {begun(sessions, "a", 1), begun(sessions, "b", 1)}
    other = begun(sessions, "c", 2)
    assert set(sessions.lost(1)) == mine
    assert sessions.lost(1) == []
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
