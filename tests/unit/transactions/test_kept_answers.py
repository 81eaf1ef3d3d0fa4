"""Answers kept for idempotency keys are bounded by count and age, and an answer that is stored again is not deleted."""

from __future__ import annotations

from pathlib import Path

from app.cluster.sqlite.groups import SqliteGroupStore
from app.cluster.transaction_store import DeleteAnswer, StoredAnswer
from app.transactions.kept_answers import KeptAnswers


def stored(key: str, at_ms: int) -> StoredAnswer:
    return StoredAnswer(key=key, digest=b"d", answer=key.encode(), created_at_ms=at_ms)


def test_the_oldest_answer_makes_room() -> None:
    answers = KeptAnswers(keys_max=2, expiration_ms=1000)
    for number, key in enumerate("abc"):
        answers.take(answers.plan(stored(key, number)))
    assert [answers.has(key, now_ms=3) for key in "abc"] == [False, True, True]
    assert len(answers) == 2


def test_an_answer_expires_and_is_deleted_with_the_next() -> None:
    answers = KeptAnswers([("a", 0), ("b", 500)], keys_max=10, expiration_ms=1000)
    assert answers.has("a", now_ms=999)
    assert not answers.has("a", now_ms=1000)
    changes = answers.plan(stored("c", 1000))
    assert changes[1:] == [DeleteAnswer(key="a", created_at_ms=0)]


def test_nothing_changes_before_the_plan_is_durable() -> None:
    answers = KeptAnswers(keys_max=1, expiration_ms=1000)
    answers.take(answers.plan(stored("a", 0)))
    answers.plan(stored("b", 1))
    assert answers.has("a", now_ms=2)
    assert not answers.has("b", now_ms=2)


def test_an_answer_that_was_stored_again_survives_the_deletion_of_the_first(tmp_path: Path) -> None:
    answers = KeptAnswers([("a", 0)], keys_max=1, expiration_ms=1000)
    deletes = answers.plan(stored("b", 1000))
    again = answers.plan(stored("a", 1001))
    store = SqliteGroupStore(tmp_path / "groups.sqlite")
    store.open()
    for changes in (again, deletes):
        store.write(changes)
        answers.take(changes)
    assert answers.has("a", now_ms=1002)
    assert store.answer("a") == stored("a", 1001)
    assert list(store.answer_ages()) == [("b", 1000), ("a", 1001)]
    store.close()
