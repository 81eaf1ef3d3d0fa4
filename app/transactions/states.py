"""The states of a transactional id, and what ending means in each.

The tables are those of Kafka's ``TransactionCoordinator`` (KIP-98, KIP-360, KIP-890). A state of
preparation exists in memory only: after a restart the store has either the outcome or none.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto


class TransactionState(Enum):
    """The values are Kafka's names, which operators see."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"

    @property
    def is_preparing(self) -> bool:
        """Whether a transaction is ending: its outcome or its markers are being written."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_open(self) -> bool:
        """Whether there is a transaction, ending or not."""
        return self is TransactionState.ONGOING or self.is_preparing


class EndAction(Enum):
    """The action for a request to end a transaction."""

    PREPARE = auto()
    # A retry of the request that ended it: the same answer, and nothing to do.
    REPEAT = auto()
    # There is no transaction to abort, but the producer asks for its next epoch (KIP-890).
    BUMP_EPOCH = auto()
    WAIT = auto()
    REFUSE = auto()
    FENCE = auto()


_S = TransactionState
_A = EndAction

# By state and whether it is to be committed; the epoch is the current one.
END: Mapping[tuple[TransactionState, bool], EndAction] = {
    (_S.ONGOING, True): _A.PREPARE,
    (_S.ONGOING, False): _A.PREPARE,
    (_S.PREPARE_COMMIT, True): _A.WAIT,
    (_S.PREPARE_COMMIT, False): _A.REFUSE,
    (_S.PREPARE_ABORT, True): _A.REFUSE,
    (_S.PREPARE_ABORT, False): _A.WAIT,
    (_S.COMPLETE_COMMIT, True): _A.REPEAT,
    (_S.COMPLETE_COMMIT, False): _A.REFUSE,
    (_S.COMPLETE_ABORT, True): _A.REFUSE,
    (_S.COMPLETE_ABORT, False): _A.REPEAT,
    (_S.EMPTY, True): _A.REFUSE,
    (_S.EMPTY, False): _A.REFUSE,
}

# Where each end raises the epoch (EndTxn v5): by state, whether it is to be committed, and whether the epoch
# is the one before the current. That epoch means that the request repeats the one that raised it.
END_AND_BUMP: Mapping[tuple[TransactionState, bool, bool], EndAction] = {
    (_S.ONGOING, True, True): _A.FENCE,
    (_S.ONGOING, True, False): _A.PREPARE,
    (_S.ONGOING, False, True): _A.FENCE,
    (_S.ONGOING, False, False): _A.PREPARE,
    (_S.PREPARE_COMMIT, True, True): _A.WAIT,
    (_S.PREPARE_COMMIT, True, False): _A.FENCE,
    (_S.PREPARE_COMMIT, False, True): _A.REFUSE,
    (_S.PREPARE_COMMIT, False, False): _A.FENCE,
    (_S.PREPARE_ABORT, True, True): _A.REFUSE,
    (_S.PREPARE_ABORT, True, False): _A.FENCE,
    (_S.PREPARE_ABORT, False, True): _A.WAIT,
    (_S.PREPARE_ABORT, False, False): _A.FENCE,
    (_S.COMPLETE_COMMIT, True, True): _A.REPEAT,
    (_S.COMPLETE_COMMIT, True, False): _A.REFUSE,
    (_S.COMPLETE_COMMIT, False, True): _A.REFUSE,
    (_S.COMPLETE_COMMIT, False, False): _A.BUMP_EPOCH,
    (_S.COMPLETE_ABORT, True, True): _A.REFUSE,
    (_S.COMPLETE_ABORT, True, False): _A.REFUSE,
    (_S.COMPLETE_ABORT, False, True): _A.REPEAT,
    (_S.COMPLETE_ABORT, False, False): _A.BUMP_EPOCH,
    (_S.EMPTY, True, True): _A.FENCE,
    (_S.EMPTY, True, False): _A.REFUSE,
    (_S.EMPTY, False, True): _A.FENCE,
    (_S.EMPTY, False, False): _A.BUMP_EPOCH,
}
