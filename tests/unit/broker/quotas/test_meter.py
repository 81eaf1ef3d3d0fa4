"""A meter charges as the machine does, whichever other client charges the same quota."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.broker.quotas import machine as machine_module
from app.broker.quotas.entities import QuotaEntity
from app.broker.quotas.limits import QuotaKey
from app.broker.quotas.machine import Meter, QuotaClient, QuotaMachine
from app.broker.quotas.rate import Window

PRODUCE = QuotaKey.PRODUCE
CLIENTS = [QuotaClient("alice", "app"), QuotaClient("alice", "tool"), QuotaClient("bob", "app")]
OF_ALICE, OF_ALL = QuotaEntity.of([("user", "alice")]), QuotaEntity.of([("user", None)])
# Some of which hold for some of the clients only.
QUOTAS = [
    {OF_ALICE: {PRODUCE: 100.0}},
    {
        OF_ALICE: {PRODUCE: 5_000.0},
        QuotaEntity.of([("user", "alice"), ("client-id", "tool")]): {PRODUCE: 50.0},
    },
    {OF_ALL: {PRODUCE: 700.0}},
    {},
]
STEPS = st.lists(
    st.tuples(
        # How long after the last step, of which connection, and how much.
        st.one_of(st.integers(0, 50), st.integers(0, 13_000)),
        st.integers(0, 2 * len(CLIENTS) - 1),
        st.integers(0, 4_000),
        # Quotas that are set before.
        st.one_of(st.none(), st.none(), st.none(), st.sampled_from(QUOTAS)),
    ),
    min_size=1,
    max_size=60,
)


@given(steps=STEPS, samples=st.integers(1, 4))
def test_meters_give_the_waits_of_the_machine(
    steps: list[tuple[int, int, int, dict[QuotaEntity, dict[QuotaKey, float]] | None]], samples: int
) -> None:
    window = Window(samples, 1000)
    plain, metered = QuotaMachine(window), QuotaMachine(window)
    for machine in (plain, metered):
        machine.set_quotas(QUOTAS[0])
    # Two connections of each client.
    connections = [(client, metered.meter(PRODUCE, client)) for client in CLIENTS for _ in range(2)]
    now_ms = 0
    for pause_ms, number, amount, quotas in steps:
        now_ms += pause_ms
        if quotas is not None:
            for machine in (plain, metered):
                machine.set_quotas(quotas)
        client, meter = connections[number]
        assert meter.charge(amount, now_ms) == plain.charge(PRODUCE, client, amount, now_ms)
        for client, meter in connections:
            until_ms, at_once_max = meter.bounds()
            assert max(0, until_ms - now_ms) == plain.wait_ms(PRODUCE, client, now_ms)
            assert at_once_max == plain.at_once_max(PRODUCE, client)


def _meters_of(machine: QuotaMachine, client: QuotaClient, count: int) -> list[Meter]:
    return [machine.meter(PRODUCE, client) for _ in range(count)]


def test_connections_share_a_use_that_was_forgotten_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_module, "USES_MAX", 1)
    machine = QuotaMachine(Window())
    machine.set_quotas({QuotaEntity.of([("client-id", None)]): {PRODUCE: 100.0}})
    first, second = _meters_of(machine, CLIENTS[0], 2)
    assert first.charge(100, 0) == 0
    # There is room for one client only.
    assert machine.charge(PRODUCE, CLIENTS[1], 1, 0) == 0
    assert len(machine) == 1
    assert second.charge(900, 0) == 0
    assert first.charge(200, 0) == 1_000, "it counts what the second one has used since"
    assert second.bounds() == (1_000, 1_000)
