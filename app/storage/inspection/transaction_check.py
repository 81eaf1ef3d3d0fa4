"""Compare indexes of aborted transactions with the markers, for ``stele verify``."""

from __future__ import annotations

from pathlib import Path

from stele.wire import record_batch as rb

from ..disk.files import Files
from ..disk.whole_files import read_file
from ..segments.open_transactions import OpenTransactions, marker_at
from ..segments.scan import ReadableFile
from ..segments.transaction_index import TRANSACTION_INDEX_SUFFIX, AbortedEntry, TransactionIndex

_REMEDY = "stop the broker and delete the .index file of this segment; the next start builds all its indexes"


class TransactionCheck:
    """Checks the logs of a partition: ``begin``, ``note`` per batch, ``problems``.

    Logs are given in order.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._transactions = OpenTransactions()
        self._aborted: dict[int, AbortedEntry] = {}

    def begin(self) -> None:
        """Begin the next segment."""
        self._aborted = {}

    def note(self, file: ReadableFile, header: rb.BatchHeader) -> None:
        """Take in a batch, which is in ``file``."""
        aborted = self._transactions.note(header, marker_at(file, header))
        if aborted is not None:
            self._aborted[aborted.last_offset] = aborted

    def problems(self, log: Path, *, next_offset: int, is_last: bool) -> list[str]:
        """Compare the index of the segment ``log``, which ends at ``next_offset``; return what is wrong.

        That of the last segment is written when the broker stops, so it may be missing.
        """
        path = log.with_suffix(TRANSACTION_INDEX_SUFFIX)
        raw = read_file(self._files, path)
        if raw is None and is_last:
            return []
        index = TransactionIndex.from_bytes(raw or b"", base_offset=int(log.stem), next_offset=next_offset)
        if index is None:
            return [f"{path}: its entries do not fit the segment; {_REMEDY}"]
        expected = dict(self._aborted)
        problems: list[str] = []
        for entry in index.entries():
            found = expected.pop(entry.last_offset, None)
            # A transaction may begin before the first batch that is left.
            is_right = found is not None and (
                found.producer_id == entry.producer_id and entry.first_offset <= found.first_offset
            )
            if not is_right:
                problems.append(
                    f"{path}: no transaction of producer {entry.producer_id} from offset {entry.first_offset} "
                    f"was aborted at offset {entry.last_offset}; {_REMEDY}"
                )
        problems += [
            f"{path}: the transaction of producer {missing.producer_id} that was aborted at offset "
            f"{missing.last_offset} is missing, so consumers get its records; {_REMEDY}"
            for missing in expected.values()
        ]
        return problems
