"""A transaction on disk comes back as it came."""

from __future__ import annotations

from pathlib import Path

from stele.cdc.spool import Spool


def test_messages_come_back_in_order_whether_they_fit_in_memory_or_not(tmp_path: Path) -> None:
    for size in (10, 100_000):
        spool = Spool(tmp_path)
        messages = [(n, bytes([n]) * size) for n in range(30)]
        for lsn, message in messages:
            spool.append(lsn, message)
        assert list(spool.messages()) == messages
        spool.close()
    # Nothing is left behind, for the file has no name.
    assert list(tmp_path.iterdir()) == []


def test_a_subtransaction_that_is_rolled_back_is_known() -> None:
    spool = Spool(None)
    spool.abort(7)
    assert spool.is_aborted(7)
    assert not spool.is_aborted(8)
    assert not spool.is_aborted(None)
    spool.close()
