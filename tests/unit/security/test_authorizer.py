"""The authorizer: what it remembers and forgets, who is above the rules, what it logs; filters and checks of rules."""

from __future__ import annotations

import json
import logging
import random
from pathlib import Path

import pytest

from app.cluster.acls import AclStore
from app.cluster.sqlite.catalog import CatalogDatabase
from app.errors import InvalidAcl, TooManyAcls, TopicAuthorizationFailed
from app.security import acls as acls_module
from app.security.acl import (
    DESCRIBE_TOPIC,
    READ_TOPIC,
    WRITE_TOPIC,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from app.security.acl_text import FIELDS
from app.security.acls import Acls
from app.security.principal import BROKER, Principal
from app.work_budget import PARTITIONS_PER_TURN
from tests.support.acls import NAMES, PRINCIPALS, authorizer_over, is_allowed, random_acls
from tests.support.turns import CallsPerTurn


class HandClock:
    """A clock that a test sets."""

    at_ms = 0

    def now_ms(self) -> int:
        return self.at_ms

    def monotonic_ms(self) -> int:
        return self.at_ms


ALICE, HOST = Principal("alice"), "127.0.0.1"


def rule(operation: Operation = Operation.READ, **fields: object) -> Acl:
    known = {
        "resource_type": ResourceType.TOPIC,
        "resource_name": "orders",
        "principal": "User:alice",
        **fields,
    }
    return Acl(operation=operation, **known)  # type: ignore[arg-type]


async def test_a_change_counts_at_once_for_accesses_that_exist() -> None:
    authorizer = await authorizer_over()
    access = authorizer.access("kafka", ALICE, HOST)
    assert not access.allows(READ_TOPIC, "orders")
    await authorizer.acls.add([rule()])
    assert access.allows(READ_TOPIC, "orders")
    assert access.allows(DESCRIBE_TOPIC, "orders")
    await authorizer.acls.add([rule(permission=Permission.DENY)])
    assert not access.allows(READ_TOPIC, "orders")
    await authorizer.acls.remove(AclFilter(permission=Permission.DENY))
    assert access.allows(READ_TOPIC, "orders")
    await authorizer.acls.remove(AclFilter())
    assert not access.allows(READ_TOPIC, "orders")
    await authorizer.acls.close()


async def test_what_was_allowed_is_so_until_a_rule_changes() -> None:
    authorizer = await authorizer_over([rule()])
    access = authorizer.access("kafka", ALICE, HOST)
    assert not access.was_allowed(READ_TOPIC, "orders"), "nobody has asked"
    assert access.allows(READ_TOPIC, "orders")
    assert access.was_allowed(READ_TOPIC, "orders")
    assert not access.allows(WRITE_TOPIC, "orders")
    assert not access.was_allowed(WRITE_TOPIC, "orders")
    await authorizer.acls.add([rule(permission=Permission.DENY)])
    assert not access.was_allowed(READ_TOPIC, "orders")


async def test_the_topic_that_was_read_last_may_be_read_until_a_rule_changes() -> None:
    authorizer = await authorizer_over([rule()])
    access = authorizer.access("binary", ALICE, HOST)
    assert access.may_read("orders")
    assert access.read_last == "orders"
    assert not access.may_read("salaries")
    assert access.read_last == "orders"
    await authorizer.acls.add([rule(permission=Permission.DENY)])
    assert access.read_last is None
    assert not access.may_read("orders")
    assert access.read_last is None


async def test_what_was_allowed_in_an_epoch_is_allowed_until_it_ends() -> None:
    authorizer = await authorizer_over([rule()])
    access, other = (authorizer.access("kafka", Principal(name), HOST) for name in ("alice", "bob"))
    assert access.epoch is not other.epoch, "another client has other rights"
    epoch = access.epoch
    assert access.allows(READ_TOPIC, "orders")
    assert access.epoch is epoch
    await authorizer.acls.add([rule(permission=Permission.DENY)])
    assert access.epoch is not epoch


async def test_the_rules_that_are_left_decide_as_if_there_had_been_no_others() -> None:
    """Kafka lost denials when another rule of the same resource was removed (CVE-2024-27309)."""
    rng = random.Random("changes of rules")
    authorizer = await authorizer_over()
    accesses = [authorizer.access("kafka", Principal.parse(name), HOST) for name in PRINCIPALS]
    left: list[Acl] = []
    denials = 0
    for _ in range(200):
        if left and rng.random() < 0.5:
            removed = rng.choice(left)
            selection = AclFilter(**{name: getattr(removed, name) for name in FIELDS})
            assert await authorizer.acls.remove(selection) == [removed]
            left.remove(removed)
        else:
            added = [acl for acl in random_acls(rng)[:4] if acl not in left]
            await authorizer.acls.add(added)
            left += dict.fromkeys(added)
        for access in accesses:
            for name in NAMES:
                for action in (READ_TOPIC, WRITE_TOPIC, DESCRIBE_TOPIC):
                    expected = is_allowed(
                        left, str(access.principal), HOST, action.operation, action.resource_type, name
                    )
                    assert access.sees(action, name) is expected, (left, access.principal, action, name)
        denials += any(acl.permission is Permission.DENY for acl in left)
    assert denials > 50


async def test_super_users_and_the_brokers_own_processes_are_above_the_rules() -> None:
    deny = rule(Operation.ALL, principal="User:*", permission=Permission.DENY)
    authorizer = await authorizer_over([deny], super_users=[Principal("root")])
    assert authorizer.access("http", Principal("root"), HOST).allows(WRITE_TOPIC, "orders")
    assert authorizer.access("http", Principal("cdc", BROKER), HOST).allows(WRITE_TOPIC, "orders")
    assert not authorizer.access("http", Principal("Root"), HOST).allows(WRITE_TOPIC, "orders")
    assert authorizer.access("http", Principal("root"), HOST).may_write_somewhere()


async def test_an_ipv4_client_on_an_ipv6_socket_has_its_ipv4_address() -> None:
    authorizer = await authorizer_over([rule(host="10.0.0.7")])
    assert authorizer.access("kafka", ALICE, "::ffff:10.0.0.7").allows(READ_TOPIC, "orders")
    assert not authorizer.access("kafka", ALICE, "::ffff:10.0.0.8").allows(READ_TOPIC, "orders")


async def test_the_error_names_who_what_and_the_way_out() -> None:
    access = (await authorizer_over()).access("kafka", ALICE, HOST)
    with pytest.raises(TopicAuthorizationFailed) as caught:
        access.require(READ_TOPIC, "orders")
    assert str(caught.value) == (
        "User:alice is not allowed to read topic 'orders'; ask an administrator for an access rule (stele acls add)"
    )


async def test_the_operations_on_a_resource_are_bits() -> None:
    access = (await authorizer_over([rule(Operation.READ)])).access("kafka", ALICE, HOST)
    assert access.operations(ResourceType.TOPIC, "orders") == 1 << 3 | 1 << 8
    assert access.operations(ResourceType.TOPIC, "other") == 0
    root = (await authorizer_over(super_users=[ALICE])).access("kafka", ALICE, HOST)
    assert root.operations(ResourceType.TOPIC, "orders") == 3576
    assert root.operations(ResourceType.GROUP, "g") == 3400
    assert root.operations(ResourceType.CLUSTER, "kafka-cluster") == 8096


async def test_denials_are_logged_and_not_each_time(caplog: pytest.LogCaptureFixture) -> None:
    clock = HandClock()
    deny = rule(Operation.WRITE, permission=Permission.DENY)
    access = (await authorizer_over([rule(), deny], clock=clock)).access("kafka", ALICE, HOST)
    with caplog.at_level(logging.INFO, "stele.audit"):
        assert access.allows(READ_TOPIC, "orders")
        for _ in range(5):
            assert not access.allows(WRITE_TOPIC, "orders")
        assert not access.sees(READ_TOPIC, "hidden")
    (line,) = (json.loads(record.getMessage()) for record in caplog.records)
    assert line == {
        "listener": "kafka",
        "peer": HOST,
        "principal": "User:alice",
        "operation": "WRITE TOPIC",
        "resource": "orders",
        "verdict": "denied",
        "rule": "DENY User:alice from * WRITE on TOPIC orders",
    }
    clock.at_ms += 60_000
    with caplog.at_level(logging.DEBUG, "stele.audit"):
        assert not access.allows(WRITE_TOPIC, "orders")
        assert not access.allows(WRITE_TOPIC, "new\nline")
    assert len(caplog.records) == 3
    assert "\n" not in caplog.records[-1].getMessage()


async def test_rules_survive_a_restart_and_duplicates_are_one(tmp_path: Path) -> None:
    acls = Acls(AclStore(CatalogDatabase(tmp_path / "metadata.sqlite")))
    await acls.open()
    prefixed = rule(Operation.WRITE, pattern_type=PatternType.PREFIXED, host="10.0.0.7")
    await acls.add([rule(), prefixed, rule()])
    await acls.add([rule()])
    await acls.close()
    again = Acls(AclStore(CatalogDatabase(tmp_path / "metadata.sqlite")))
    await again.open()
    assert await again.find(AclFilter()) == [rule(), prefixed]
    assert await again.remove(AclFilter(pattern_type=PatternType.PREFIXED)) == [prefixed]
    await again.close()
    last = Acls(AclStore(CatalogDatabase(tmp_path / "metadata.sqlite")))
    await last.open()
    assert last.all() == [rule()]
    await last.close()


async def test_rules_are_bounded_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acls_module, "ACLS_MAX", 2)
    acls = (await authorizer_over([rule()])).acls
    with pytest.raises(TooManyAcls):
        await acls.add([rule(resource_name="b"), rule(resource_name="c")])
    assert acls.all() == [rule()]


@pytest.mark.parametrize(
    "fields",
    [
        {"resource_name": ""},
        {"resource_name": "a" * 1001},
        {"resource_name": "new\nline"},
        {"principal": "alice"},
        {"principal": "Group:alice"},
        {"principal": "Broker:cdc"},
        {"host": "example.com"},
        {"operation": Operation.CLUSTER_ACTION},
        {"resource_type": ResourceType.CLUSTER, "operation": Operation.ALTER},
    ],
)
async def test_rules_that_could_never_apply_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(InvalidAcl):
        await (await authorizer_over()).acls.add([rule(**fields)])  # type: ignore[arg-type]


def test_filters_select_as_in_kafka() -> None:
    literal, wildcard = rule(), rule(resource_name="*")
    prefix, other = rule(resource_name="ord", pattern_type=PatternType.PREFIXED), rule(resource_name="ord")
    rules = [literal, wildcard, prefix, other]

    def selected(**fields: object) -> list[Acl]:
        wanted = AclFilter(resource_type=ResourceType.TOPIC, **fields)  # type: ignore[arg-type]
        return [one for one in rules if wanted.selects(one)]

    assert selected() == rules
    assert selected(resource_name="orders", pattern_type=PatternType.MATCH) == [literal, wildcard, prefix]
    assert selected(resource_name="orders", pattern_type=PatternType.LITERAL) == [literal]
    assert selected(resource_name="ord") == [prefix, other]
    assert selected(resource_name="ord", pattern_type=PatternType.PREFIXED) == [prefix]
    assert selected(operation=Operation.ALL) == []
    assert selected(principal="User:*") == []
    assert selected(host="*") == rules


async def test_many_rules_are_added_found_and_removed_in_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    acls = Acls(AclStore(CatalogDatabase(tmp_path / "metadata.sqlite")))
    await acls.open()
    checked, selected = CallsPerTurn(Acl.check), CallsPerTurn(AclFilter.selects)

    def check(acl: Acl) -> None:
        checked(acl)

    def selects(wanted: AclFilter, acl: Acl) -> bool:
        return selected(wanted, acl)

    monkeypatch.setattr(Acl, "check", check)
    monkeypatch.setattr(AclFilter, "selects", selects)
    rules = [rule(host=f"10.0.{number // 250}.{number % 250}") for number in range(1000)]
    await acls.add(rules)
    assert len(await acls.find(AclFilter())) == len(rules)
    assert len(await acls.remove(AclFilter())) == len(rules)
    assert acls.all() == []
    assert (checked.total, selected.total) == (len(rules), 2 * len(rules))
    assert max(checked.most, selected.most) <= PARTITIONS_PER_TURN
    await acls.close()
