"""What the ledger of the fault runs takes for a broken promise."""

from __future__ import annotations

import pytest

from tests.support.faults.ledger import Failover, Ledger
from tests.support.faults.reports import Report

ENDS_AT = 541


def lost(topic: str, offset: int, *, reported: bool) -> list[str]:
    """Return what is broken if a record at ``offset`` is gone after the promotion of a standby that ends at 541."""
    ledger, place = Ledger(), (topic, 0)
    ledger.ack(place, offset, b"x-1-0-", topic)
    ledger.failovers.append(
        Failover(number=1, is_asynchronous=True, ends={place: ENDS_AT}, epoch=5, all_lived=True)
    )
    if reported:
        ledger.reports.append(Report(place=place, first=ENDS_AT, last=ENDS_AT, epoch=5))
    ledger.check_log(place, 0, {}, "a broker", is_dense=False)
    return ledger.broken


@pytest.mark.parametrize(
    ("topic", "offset"),
    [
        pytest.param("plain", ENDS_AT, id="a record"),
        pytest.param("pairs", ENDS_AT - 1, id="the record of a commit"),
    ],
)
def test_what_the_standby_lacked_may_be_gone_if_a_broker_reports_it(topic: str, offset: int) -> None:
    assert lost(topic, offset, reported=True) == []
    assert lost(topic, offset, reported=False)


@pytest.mark.parametrize(("topic", "offset"), [("plain", ENDS_AT - 1), ("pairs", ENDS_AT - 2)])
def test_what_the_standby_had_may_not_be_gone(topic: str, offset: int) -> None:
    assert lost(topic, offset, reported=True)
