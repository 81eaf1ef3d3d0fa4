"""Claims are proved by others, which may lead back to them, but never by themselves."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from app.registry.compatibility.proofs import UNDECIDED, Proof, Proofs, Question

Finding = Proof[str, None]


def same(claim: str) -> Finding:
    """Need a claim about the same values."""
    yield from (yield Question(claim))


def inside(claim: str) -> Finding:
    """Need a claim about what is inside of the values."""
    yield from (yield Question(claim, is_inside=True))


def wrong(problem: str) -> Finding:
    yield problem


def either(*needs: Callable[[], Finding]) -> Finding:
    """Need one of several claims."""
    problems: list[str] = []
    for need in needs:
        problems = []
        proof = need()
        answer = None
        while True:
            try:
                found = next(proof) if answer is None else proof.send(answer)
            except StopIteration:
                break
            answer = None
            if isinstance(found, str):
                problems.append(found)
            else:
                answer = yield found
        if not problems:
            return
    yield from problems


def proofs(wanted: int = 10, **rules: list[Callable[[], Finding]]) -> Proofs[str]:
    def prove(claim: str) -> Finding:
        for need in rules[claim]:
            yield from need()

    return Proofs(prove, lambda _: wanted)


def test_a_claim_is_proved_by_others() -> None:
    claims = proofs(a=[lambda: same("b"), lambda: inside("c")], b=[], c=[lambda: inside("b")])

    assert claims.problems_of("a") == []


def test_the_problems_of_what_a_claim_needs_are_its_own() -> None:
    claims = proofs(
        a=[lambda: wrong("1"), lambda: same("b"), lambda: inside("c")],
        b=[lambda: wrong("2"), lambda: wrong("3")],
        c=[],
    )

    assert claims.problems_of("a") == ["1", "2", "3"]
    assert claims.problems_of("a") == ["1", "2", "3"]


def test_a_proof_ends_with_the_last_problem_that_is_wanted() -> None:
    asked: list[str] = []

    def last() -> Finding:
        asked.append("last")
        yield "4"

    claims = proofs(
        wanted=2, a=[lambda: wrong("1"), lambda: same("b"), last], b=[lambda: wrong("2"), lambda: wrong("3")]
    )

    assert claims.problems_of("a") == ["1", "2"]
    assert asked == []


def test_a_claim_may_be_assumed_of_what_is_inside() -> None:
    assert proofs(a=[lambda: inside("a")]).problems_of("a") == []
    assert proofs(a=[lambda: inside("b")], b=[lambda: same("a")]).problems_of("a") == []


def test_a_claim_is_not_assumed_of_the_same_values() -> None:
    assert proofs(a=[lambda: same("a")]).problems_of("a") == [UNDECIDED]
    assert proofs(a=[lambda: same("b")], b=[lambda: same("a")]).problems_of("a") == [UNDECIDED]


def test_what_rests_on_a_claim_does_not_prove_it() -> None:
    # b is true of what is inside if a is; that says nothing of b about the same values.
    claims = proofs(a=[lambda: inside("b"), lambda: same("b")], b=[lambda: same("a")])

    assert claims.problems_of("a") == [UNDECIDED]


@pytest.mark.parametrize("way", [same, inside])
def test_what_rested_on_a_refuted_claim_is_forgotten(way: Callable[[str], Finding]) -> None:
    claims = proofs(
        root=[lambda: either(lambda: way("a"), lambda: way("b"))],
        a=[lambda: inside("b"), lambda: wrong("no")],
        b=[lambda: inside("a")],
    )

    assert claims.problems_of("root") == ["no"]
    assert claims.problems_of("b") == ["no"]


def test_what_rested_on_what_rested_on_a_refuted_claim_is_forgotten() -> None:
    claims = proofs(
        root=[lambda: either(lambda: same("a"), lambda: same("c"))],
        a=[lambda: inside("b"), lambda: wrong("no")],
        b=[lambda: inside("c"), lambda: inside("a")],
        c=[lambda: inside("b")],
    )

    assert claims.problems_of("root") == ["no"]


def test_what_rests_on_nothing_is_proved_once() -> None:
    proved: list[str] = []

    def note() -> Finding:
        proved.append("b")
        yield from ()

    claims = proofs(
        root=[lambda: either(lambda: same("a"), lambda: same("b"))],
        a=[lambda: inside("b"), lambda: wrong("no")],
        b=[note, lambda: inside("b")],
    )

    assert claims.problems_of("root") == []
    assert proved == ["b"]


def test_claims_lead_to_each_other_as_deep_as_they_like() -> None:
    depth = 10_000

    def prove(claim: int) -> Proof[int, None]:
        if claim == depth:
            yield "the end"
        else:
            yield from (yield Question(claim + 1, is_inside=True))

    assert Proofs(prove, lambda _: 1).problems_of(0) == ["the end"]
