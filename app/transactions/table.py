"""The table of transactional ids, their producer ids, and those with an open transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..errors import TooManyTransactionalIds
from .messages import ProducerIdentity
from .plans import Moment
from .transaction import NO_PRODUCER_ID, Transaction


class TransactionTable:
    """All transactional ids of one coordinator."""

    def __init__(self, *, ids_max: int) -> None:
        self._ids_max = ids_max
        self._transactions: dict[str, Transaction] = {}
        # The current producer id of each; after it was used up, only the next one.
        self._by_producer: dict[int, Transaction] = {}
        # In the order in which they began.
        self._open: dict[str, Transaction] = {}

    def __len__(self) -> int:
        return len(self._transactions)

    def __iter__(self) -> Iterator[Transaction]:
        return iter(self._transactions.values())

    @property
    def open(self) -> Iterable[Transaction]:
        """The transactions that are open, including those that are ending."""
        return self._open.values()

    @property
    def oldest_open(self) -> Transaction | None:
        """The transaction that has been open for longest."""
        return next(iter(self._open.values()), None)

    @property
    def open_count(self) -> int:
        return len(self._open)

    def find(self, transactional_id: str) -> Transaction | None:
        return self._transactions.get(transactional_id)

    def of_producer(self, producer_id: int) -> Transaction | None:
        """Return the transactional id that has a producer id now."""
        return self._by_producer.get(producer_id)

    def of_identity(self, producer: ProducerIdentity) -> Transaction | None:
        """Return the transactional id whose current producer this is."""
        transaction = self._by_producer.get(producer.producer_id)
        return transaction if transaction is not None and transaction.producer == producer else None

    def check_room(self, transactional_id: str) -> None:
        """Raises ``TooManyTransactionalIds``."""
        if len(self._transactions) >= self._ids_max:
            raise TooManyTransactionalIds(transactional_id, limit=self._ids_max)

    def add(self, transaction: Transaction) -> None:
        self._transactions[transaction.transactional_id] = transaction
        self.changed(transaction)

    def existing_or_new(self, transactional_id: str, *, now: Moment) -> Transaction:
        """Raises ``TooManyTransactionalIds``."""
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            self.check_room(transactional_id)
            transaction = Transaction(transactional_id, now=now)
            self._transactions[transactional_id] = transaction
        return transaction

    def changed(self, transaction: Transaction) -> None:
        """Note that the state or the producer id of a transaction changed."""
        previous = self._by_producer.get(transaction.previous_producer_id)
        if previous is transaction:
            del self._by_producer[transaction.previous_producer_id]
        if transaction.producer_id != NO_PRODUCER_ID:
            self._by_producer[transaction.producer_id] = transaction
        if transaction.state.is_open:
            self._open[transaction.transactional_id] = transaction
        else:
            self._open.pop(transaction.transactional_id, None)

    def remove(self, transaction: Transaction) -> None:
        self._transactions.pop(transaction.transactional_id, None)
        self._by_producer.pop(transaction.producer_id, None)
        self._open.pop(transaction.transactional_id, None)
