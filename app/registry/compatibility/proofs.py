"""Proofs of claims that may refer to each other, as the schemas do that they are about.

A claim is about all values of some kind, such as "what the writer's node accepts, the reader's does". Its proof asks
for other claims, about the same values or about what is inside of them. A proof may assume every claim whose own
proof has led to it, if it is about something inside: values end, so nothing is proved by itself. What was proved with
an assumption is forgotten if that turns out to be wrong, and is not used where it would support itself.

A proof is a generator. It yields questions, and is sent why they are not true; and it yields the problems that it
finds. So no stack of Python grows however deep schemas refer to each other. A proof must not take the truth of a
claim for a problem: it may only be assumed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable
from typing import Generic, NamedTuple, TypeVar

C = TypeVar("C", bound=Hashable)
T = TypeVar("T")

# Why a claim is not true, or cannot be proved; nothing if it is.
Problems = list[str]
UNDECIDED = "it was not possible to decide"


class Question(NamedTuple, Generic[C]):
    """Whether a claim is true; ``is_inside``: it is about what is inside of the values in question."""

    claim: C
    is_inside: bool = False


Proof = Generator[Question[C] | str, Problems, T]


class _Open(Generic[C]):
    """A claim that is being proved; ``index`` is its place on the path of such claims."""

    __slots__ = ("assumed", "claim", "depth", "index", "problems", "proof", "proved_before")

    def __init__(self, claim: C, proof: Proof[C, None], depth: int, index: int, proved_before: int) -> None:
        self.claim = claim
        self.proof = proof
        self.depth = depth
        self.index = index
        self.problems: Problems = []
        # What its proof has assumed so far: a bit for each open claim, by its index.
        self.assumed = 0
        self.proved_before = proved_before


class Proofs(Generic[C]):
    """Claims that are proved, refuted or open.

    ``prove`` begins a proof, ``problems_wanted`` says after how many problems it may end.
    """

    def __init__(self, prove: Callable[[C], Proof[C, None]], problems_wanted: Callable[[C], int]) -> None:
        self._prove = prove
        self._problems_wanted = problems_wanted
        # Each with the open claims that it rests on, as bits.
        self._proved: dict[C, int] = {}
        # Those that rest on any, in their order.
        self._unsure: list[C] = []
        self._refuted: dict[C, Problems] = {}
        self._open: dict[C, _Open[C]] = {}
        self._path: list[_Open[C]] = []

    def problems_of(self, claim: C) -> Problems:
        """Return why a claim is not true."""
        answer = self._answer(claim, 0)
        while self._path:
            current = self._path[-1]
            try:
                found = next(current.proof) if answer is None else current.proof.send(answer)
            except StopIteration:
                answer = self._close()
                continue
            if isinstance(found, str):
                current.problems.append(found)
                answer = None
                if len(current.problems) >= self._problems_wanted(current.claim):
                    current.proof.close()
                    answer = self._close()
            else:
                answer = self._answer(found.claim, current.depth + found.is_inside)
        assert answer is not None
        return answer

    def _answer(self, claim: C, depth: int) -> Problems | None:
        """Return why a claim is not true if that is known; otherwise begin its proof."""
        if (refuted := self._refuted.get(claim)) is not None:
            return refuted
        path = self._path
        assumed = self._proved.get(claim)
        if assumed is None and (opened := self._open.get(claim)):
            if opened.depth == depth:
                return [UNDECIDED]
            assumed = 1 << opened.index
        # The depth grows along the path, so the last of them is the deepest.
        if assumed is not None and (not assumed or path[assumed.bit_length() - 1].depth < depth):
            if path:
                path[-1].assumed |= assumed
            return []
        self._open[claim] = _Open(claim, self._prove(claim), depth, len(path), len(self._unsure))
        path.append(self._open[claim])
        return None

    def _close(self) -> Problems:
        closed = self._path.pop()
        del self._open[closed.claim]
        own = 1 << closed.index
        rests_on = closed.assumed & ~own
        since = self._unsure[closed.proved_before :]
        del self._unsure[closed.proved_before :]
        for claim in since:
            # It was proved twice if it could not be used the second time, and then is met twice here.
            assumed = self._proved.get(claim, 0)
            if not assumed & own:
                self._unsure += [claim] if assumed else []
            elif closed.problems:
                del self._proved[claim]
            else:
                self._rest(claim, assumed & ~own | rests_on)
        if closed.problems:
            self._refuted[closed.claim] = closed.problems
        else:
            self._rest(closed.claim, rests_on)
            if self._path:
                self._path[-1].assumed |= rests_on
        return closed.problems

    def _rest(self, claim: C, assumed: int) -> None:
        """Note that a claim is proved, and what it rests on."""
        self._proved[claim] = assumed
        if assumed:
            self._unsure.append(claim)
