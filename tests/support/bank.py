"""A bank whose transfers are transactions: accounts in several topics, and what became of each transfer.

An account is the sum of its records. A transfer takes from some accounts and gives to others, so all
balances add up to what the bank opened with, as long as every transfer is there as a whole, once.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from stele.records import TopicPartition

ACCOUNTS = 20
TOPICS = ("bank.a", "bank.b", "bank.c", "bank.d")
PARTITIONS = 2
OPENING_BALANCE = 100
TOTAL = ACCOUNTS * OPENING_BALANCE
# One record, which is never acknowledged: for leases that are over.
LEASE_TOPIC = "bank.leases"
# Where a teller commits the number of its last transfer, as an offset of its own group.
OFFSET_PLACE = TopicPartition(TOPICS[0], 0)

PLACES = tuple(TopicPartition(topic, partition) for topic in TOPICS for partition in range(PARTITIONS))

Outcome = Literal["committed", "aborted", "unknown"]


def place_of(account: int) -> TopicPartition:
    return PLACES[account % len(PLACES)]


@dataclass(frozen=True, slots=True)
class Transfer:
    """``amounts`` by account, which add up to zero, except those of the opening."""

    name: str
    amounts: Mapping[int, int]
    is_aborted: bool = False

    def values(self) -> dict[TopicPartition, list[bytes]]:
        """Return the records of each partition: each names the whole transfer."""
        amounts = {str(account): amount for account, amount in self.amounts.items()}
        values: dict[TopicPartition, list[bytes]] = {}
        for account in self.amounts:
            entry = {"transfer": self.name, "account": account, "amounts": amounts}
            values.setdefault(place_of(account), []).append(json.dumps(entry).encode())
        return values


OPENING = Transfer("opening/0", dict.fromkeys(range(ACCOUNTS), OPENING_BALANCE))


def transfer_of(teller: str, number: int) -> Transfer:
    """Return the transfer that a teller makes, the same each time; one in ten is aborted by its teller."""
    chance = random.Random(f"{teller}/{number}")
    payers = chance.choice((1, 1, 1, 3))
    accounts = chance.sample(range(ACCOUNTS), payers + 1)
    amounts = {account: -chance.randint(1, 20) for account in accounts[1:]}
    amounts[accounts[0]] = -sum(amounts.values())
    return Transfer(f"{teller}/{number}", amounts, is_aborted=chance.random() < 0.1)


class Books:
    """What the tellers said of their transfers; one that was begun and nothing more may be there or not."""

    def __init__(self) -> None:
        self.outcomes: dict[str, Outcome] = {OPENING.name: "committed"}
        self._moved = threading.Condition()

    def note(self, transfer: str, outcome: Outcome) -> None:
        with self._moved:
            self.outcomes[transfer] = outcome
            self._moved.notify_all()

    @property
    def committed(self) -> set[str]:
        with self._moved:
            return {transfer for transfer, outcome in self.outcomes.items() if outcome == "committed"}

    @property
    def aborted(self) -> set[str]:
        with self._moved:
            return {transfer for transfer, outcome in self.outcomes.items() if outcome == "aborted"}

    def await_committed(self, more: int, *, check: Callable[[], None], timeout_s: float) -> None:
        """Wait until so many more transfers are committed; ``check`` fails if a process has ended."""
        enough = len(self.committed) + more
        give_up_s = time.monotonic() + timeout_s
        while (count := len(self.committed)) < enough:
            check()
            assert time.monotonic() < give_up_s, f"{count} transfers, and no more within {timeout_s:g} s"
            with self._moved:
                self._moved.wait(0.5)
