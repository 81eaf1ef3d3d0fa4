"""Which quota holds for a client, who shares it, how long it waits, and what is forgotten."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pytest

from app.broker.quotas import machine as machine_module
from app.broker.quotas.entities import (
    ALL_ENTITIES,
    EntityFilter,
    EntityType,
    Match,
    QuotaEntity,
    address_text,
)
from app.broker.quotas.limits import QuotaKey, check_quota
from app.broker.quotas.machine import QuotaClient, QuotaMachine
from app.broker.quotas.rate import Window
from app.errors import InvalidRequest

USER, CLIENT, IP = EntityType.USER, EntityType.CLIENT_ID, EntityType.IP
PRODUCE, CONSUME, REQUEST, CONNECTION = (
    QuotaKey.PRODUCE,
    QuotaKey.CONSUME,
    QuotaKey.REQUEST,
    QuotaKey.CONNECTION,
)
ALICE = QuotaClient("alice", "app")


def entity(**names: str | None) -> QuotaEntity:
    return QuotaEntity.of((name.replace("_", "-"), value) for name, value in names.items())


def machine_of(quotas: Mapping[QuotaEntity, Mapping[QuotaKey, float]]) -> QuotaMachine:
    machine = QuotaMachine(Window())
    machine.set_quotas(quotas)
    return machine


# ── precedence (KIP-13, KIP-55) ──

LEVELS = [
    entity(user="alice", client_id="app"),
    entity(user="alice", client_id=None),
    entity(user="alice"),
    entity(user=None, client_id="app"),
    entity(user=None, client_id=None),
    entity(user=None),
    entity(client_id="app"),
    entity(client_id=None),
]


@pytest.mark.parametrize("first", range(len(LEVELS)))
def test_the_most_specific_of_eight_levels_holds(first: int) -> None:
    # One request is as much as is allowed at once, so the limit can be read off.
    quotas = {level: {PRODUCE: float(number + 1)} for number, level in enumerate(LEVELS)}
    for level in LEVELS[:first]:
        del quotas[level]
    assert machine_of(quotas).at_once_max(PRODUCE, ALICE) == (first + 1) * 10


def test_a_client_without_a_quota_of_its_own_has_none() -> None:
    machine = machine_of({entity(user="alice"): {PRODUCE: 1}, entity(client_id="app"): {PRODUCE: 1}})
    other = QuotaClient("bob", "other")
    assert machine.at_once_max(PRODUCE, other) is None
    assert machine.charge(PRODUCE, other, 1e9, 0) == 0
    assert machine.wait_ms(PRODUCE, other, 0) == 0


def test_a_level_counts_only_if_it_has_a_quota_of_the_kind() -> None:
    machine = machine_of(
        {entity(user="alice", client_id="app"): {CONSUME: 5}, entity(user="alice"): {PRODUCE: 7}}
    )
    assert machine.at_once_max(PRODUCE, ALICE) == 70
    assert machine.at_once_max(CONSUME, ALICE) == 50


@pytest.mark.parametrize(
    ("of", "sharer", "stranger"),
    [
        (entity(user="alice"), QuotaClient("alice", "other"), QuotaClient("bob", "app")),
        (entity(user=None), QuotaClient("alice", "other"), QuotaClient("bob", "app")),
        (entity(client_id="app"), QuotaClient("bob", "app"), QuotaClient("alice", "other")),
        (entity(client_id=None), QuotaClient("bob", "app"), QuotaClient("alice", "other")),
        (entity(user=None, client_id=None), ALICE, QuotaClient("alice", "other")),
        (entity(user="alice", client_id=None), ALICE, QuotaClient("alice", "other")),
    ],
)
def test_which_clients_share_a_quota(of: QuotaEntity, sharer: QuotaClient, stranger: QuotaClient) -> None:
    machine = machine_of({of: {PRODUCE: 100}})
    assert machine.charge(PRODUCE, ALICE, 2000, 0) == 10_000
    assert machine.wait_ms(PRODUCE, sharer, 0) == 10_000
    assert machine.wait_ms(PRODUCE, stranger, 0) == 0


# ── waits ──


def test_a_wait_is_over_when_it_was_said_to_be() -> None:
    machine = machine_of({entity(user="alice"): {PRODUCE: 100}})
    assert machine.charge(PRODUCE, ALICE, 1000, 0) == 0
    assert machine.charge(PRODUCE, ALICE, 1000, 0) == 10_000
    assert machine.wait_ms(PRODUCE, ALICE, 9_000) == 1_000
    assert machine.wait_ms(PRODUCE, ALICE, 10_000) == 0


def test_a_large_request_is_waited_for_longer_than_the_window() -> None:
    machine = machine_of({entity(user="alice"): {PRODUCE: 100}})
    assert machine.charge(PRODUCE, ALICE, 100_000, 0) == 990_000
    assert machine.wait_ms(PRODUCE, ALICE, 500_000) == 490_000


def test_requests_wait_for_one_sample_at_most() -> None:
    machine = machine_of({entity(user="alice"): {REQUEST: 1}})
    assert machine.charge(REQUEST, ALICE, 500, 0) == 1_000


def test_a_delay_fits_into_a_response() -> None:
    machine = machine_of({entity(user="alice"): {PRODUCE: 1}})
    assert machine.charge(PRODUCE, ALICE, 2.0**40, 0) == 2**31 - 1


def test_a_change_of_quotas_ends_waits_and_keeps_what_was_used() -> None:
    machine = machine_of({entity(user="alice"): {PRODUCE: 100}})
    assert machine.charge(PRODUCE, ALICE, 2000, 0) == 10_000
    machine.set_quotas({entity(user="alice"): {PRODUCE: 200}})
    assert machine.wait_ms(PRODUCE, ALICE, 0) == 0
    assert machine.charge(PRODUCE, ALICE, 200, 0) == 1_000


# ── connections ──


def test_connections_over_the_rate_of_their_address_are_refused_and_not_counted() -> None:
    machine = machine_of({entity(ip="192.0.2.7"): {CONNECTION: 1}, entity(ip=None): {CONNECTION: 2}})
    assert [machine.connect("192.0.2.7", 0) for _ in range(10)] == [0] * 10
    assert machine.connect("192.0.2.7", 0) == 1_000
    assert machine.connect("192.0.2.7", 0) == 1_000
    assert [machine.connect("192.0.2.8", 0) for _ in range(20)] == [0] * 20
    assert machine.connect("192.0.2.8", 0) > 0
    assert machine.connect("192.0.2.7", 11_000) == 0


def test_an_address_has_one_spelling() -> None:
    assert address_text("::ffff:192.0.2.7") == "192.0.2.7"
    assert address_text("2001:DB8:0::1") == "2001:db8::1"
    assert entity(ip="2001:DB8::1") == entity(ip="2001:db8:0::1")


# ── memory ──


def test_what_no_longer_counts_is_forgotten() -> None:
    machine = machine_of({entity(client_id=None): {PRODUCE: 100}})
    for number in range(50):
        machine.charge(PRODUCE, QuotaClient("x", f"client {number}"), 1, 0)
    machine.charge(PRODUCE, QuotaClient("x", "in debt"), 100_000, 0)
    assert len(machine) == 51
    machine.charge(PRODUCE, QuotaClient("x", "new"), 1, 11_000)
    assert len(machine) == 2
    assert machine.wait_ms(PRODUCE, QuotaClient("x", "in debt"), 11_000) > 0


def test_clients_that_invent_names_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_module, "USES_MAX", 100)
    machine = machine_of({entity(client_id=None): {PRODUCE: 100}})
    for number in range(1_000):
        machine.charge(PRODUCE, QuotaClient("x", f"client {number}"), 1, number)
        assert len(machine) <= 100


# ── entities and filters ──


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [("planet", "mars")],
        [("user", "a"), ("user", "b")],
        [("ip", "192.0.2.7"), ("user", "a")],
        [("ip", "somewhere")],
        [("user", "")],
        [("client-id", "x" * 1001)],
    ],
)
def test_an_entity_that_cannot_be(parts: list[tuple[str, str | None]]) -> None:
    with pytest.raises(InvalidRequest):
        QuotaEntity.of(parts)


def test_an_entity_survives_its_text() -> None:
    for one in (*LEVELS, entity(ip=None), entity(user='quo"te\n')):
        assert QuotaEntity.from_text(str(one)) == one


@pytest.mark.parametrize(
    ("of", "name", "value"),
    [
        (entity(user="a"), "consumer_rate", 1.0),
        (entity(user="a"), "connection_creation_rate", 1.0),
        (entity(user="a"), "controller_mutation_rate", 1.0),
        (entity(ip=None), "producer_byte_rate", 1.0),
        (entity(user="a"), "producer_byte_rate", 0.0),
        (entity(user="a"), "producer_byte_rate", -1.0),
        (entity(user="a"), "producer_byte_rate", 1.5),
        (entity(user="a"), "producer_byte_rate", 1e-9),
        (entity(user="a"), "producer_byte_rate", float("nan")),
        (entity(user="a"), "request_percentage", float("inf")),
    ],
)
def test_a_quota_that_cannot_be_set(of: QuotaEntity, name: str, value: float) -> None:
    with pytest.raises(InvalidRequest):
        check_quota(of, name, value)


def test_a_percentage_may_have_a_fraction() -> None:
    assert check_quota(entity(user="a"), "request_percentage", 0.5) is REQUEST


def test_filters() -> None:
    everything = [*LEVELS, entity(user="bob"), entity(ip="192.0.2.7"), entity(ip=None)]

    def found(*, is_strict: bool = False, **wanted: tuple[Match, str | None]) -> list[QuotaEntity]:
        by_type = {EntityType(name.replace("_", "-")): match for name, match in wanted.items()}
        chosen = EntityFilter(by_type, is_strict)
        return [one for one in everything if chosen.matches(one)]

    any_name, default = (Match.ANY, None), (Match.DEFAULT, None)
    assert [one for one in everything if ALL_ENTITIES.matches(one)] == everything
    assert found(ip=any_name) == everything[-2:]
    assert found(user=(Match.EXACT, "bob")) == [entity(user="bob")]
    assert found(user=any_name, is_strict=True) == [
        entity(user="alice"),
        entity(user=None),
        entity(user="bob"),
    ]
    assert found(user=default, client_id=any_name) == LEVELS[3:5]
    assert found(client_id=(Match.EXACT, "app")) == [LEVELS[0], LEVELS[3], LEVELS[6]]
    assert found(client_id=default, is_strict=True) == [LEVELS[7]]
    with pytest.raises(InvalidRequest):
        found(ip=any_name, user=any_name)


def test_pairs_of_levels_never_tie() -> None:
    for one, other in itertools.combinations(LEVELS, 2):
        machine = machine_of({one: {PRODUCE: 1}, other: {PRODUCE: 2}})
        assert machine.at_once_max(PRODUCE, ALICE) == 10
