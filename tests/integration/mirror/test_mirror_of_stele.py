"""Mirrors of another Stele: every login and TLS, secrets, access rules, sources that lose records, and promotion."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import shutil
import signal
import socket
import ssl
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from jwt.algorithms import RSAAlgorithm
from stele import Client
from stele.broker_process import BrokerLogin, BrokerProcess, BrokerTls, run_broker
from stele.mirror.definition import Address, addresses
from stele.mirror.errors import MirrorError, SourceError, SourceRefused, SourceUnavailable
from stele.mirror.groups import Groups
from stele.mirror.properties import parse, resolved
from stele.mirror.source import reads
from stele.mirror.source.cluster import Source
from stele.mirror.target import SteleTarget
from stele.records import TopicPartition as Name

from tests.integration.test_kafka_logins import AUDIENCE, ISSUER, KEY, token
from tests.support.certificates import Authority
from tests.support.mirrors import TIMEOUT_S, assert_equal, mirror_pids, partition_of, read_raw, run_mirror
from tests.support.waiting import eventually
from tests.support.warm_processes import run_stele

_numbers = itertools.count()
LOGIN = BrokerLogin(user="ada", password="the-password-of-ada")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def source(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """With TLS, and with logins that any mechanism may use."""
    pair = authority.server()
    tls = BrokerTls(
        certificate_file=pair.certificate_file,
        key_file=pair.key_file,
        ca_file=authority.ca_file,
        client_auth="requested",
    )
    key_set = tmp_path_factory.mktemp("issuer") / "jwks.json"
    public: dict[str, Any] = RSAAlgorithm.to_jwk(KEY.public_key(), as_dict=True)
    key_set.write_text(json.dumps({"keys": [{**public, "kid": "one"}]}))
    environment = {
        "STELE_LOGIN_FAILURES_FREE": "10000",
        "STELE_OAUTH_JWKS": str(key_set),
        "STELE_OAUTH_ISSUER": ISSUER,
        "STELE_OAUTH_AUDIENCE": AUDIENCE,
        "STELE_MIRROR_SECRET_TARGET": BrokerLogin().password,
    }
    with run_broker(
        tmp_path_factory.mktemp("source") / "data", tls=tls, login=LOGIN, environment=environment
    ) as broker:
        yield broker


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with run_broker(
        tmp_path_factory.mktemp("target") / "data", login=BrokerLogin(), environment=SECRETS
    ) as broker:
        yield broker


@pytest.fixture
def topic() -> str:
    return f"topic-{next(_numbers)}"


def put(broker: BrokerProcess, topic: str, *values: str, partitions: int = 1) -> None:
    with Client(broker.binary_url) as client:
        client.ensure_topic(topic, partitions=partitions)
        client.produce_many(topic, [value.encode() for value in values])


def http(broker: BrokerProcess) -> httpx.Client:
    context = True if broker.tls is None else ssl.create_default_context(cafile=broker.tls.ca_file)
    return httpx.Client(base_url=broker.http_url, verify=context, timeout=60)


def properties_of(source: BrokerProcess, mechanism: str, **more: str) -> dict[str, str]:
    assert source.tls is not None
    return {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(source.tls.ca_file),
        "sasl.mechanism": mechanism,
        "sasl.username": LOGIN.user,
        "sasl.password": "${env:STELE_MIRROR_SECRET_ADA}",
        **{name.replace("_", "."): value for name, value in more.items()},
    }


SECRETS = {"STELE_MIRROR_SECRET_ADA": LOGIN.password}


def connect(source: BrokerProcess, properties: dict[str, str]) -> None:
    """Connect as a mirror does."""

    async def ask() -> None:
        client = Source(
            addresses(source.kafka_bootstrap), lambda: parse(resolved(properties, SECRETS, read), mirror="m")
        )
        try:
            await reads.topics(client)
        finally:
            await client.close()

    def read(path: str) -> str:
        return Path(path).read_text()

    asyncio.run(ask())


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_password_logs_in(source: BrokerProcess, mechanism: str) -> None:
    properties = properties_of(source, mechanism)
    connect(source, properties)
    with pytest.raises(SourceRefused, match="refused the login"):
        connect(source, properties | {"sasl.password": "zebra"})
    with pytest.raises(SourceRefused, match=r"certificate is not trusted.*ssl.ca.location"):
        connect(source, {name: value for name, value in properties.items() if name != "ssl.ca.location"})
    plain = {name: value for name, value in properties.items() if not name.startswith("ssl.")}
    with pytest.raises(SourceError):
        connect(source, plain | {"security.protocol": "SASL_PLAINTEXT"})


def test_a_token_in_a_file_and_a_certificate_log_in(
    source: BrokerProcess, authority: Authority, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(token(LOGIN.user) + "\n")
    certificate = authority.client("mirror")
    properties = properties_of(source, "OAUTHBEARER", sasl_oauthbearer_token=f"${{file:{tmp_path}/token}}")
    properties |= {
        "ssl.certificate.location": str(certificate.certificate_file),
        "ssl.key.location": str(certificate.key_file),
    }
    del properties["sasl.username"], properties["sasl.password"]
    connect(source, properties)
    with pytest.raises(MirrorError, match=r"ssl.certificate.location .* cannot be used"):
        connect(source, properties | {"ssl.key.location": "/nowhere"})


def test_a_wrong_password_is_shown_until_it_is_right(
    source: BrokerProcess, target: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    put(source, topic, "a")
    (tmp_path / "password").write_text("zebra-Quartz")
    properties = properties_of(source, "SCRAM-SHA-256", sasl_password="${file:password}")
    environment = {"STELE_MIRROR_SECRETS_DIR": str(tmp_path)}
    with run_mirror(
        target, source.kafka_bootstrap, topic, source=properties, environment=environment
    ) as mirror:
        status = mirror.await_status(lambda status: status["state"] == "failed")
        assert "refused the login" in status["last_error"]
        assert "zebra" not in str(mirror.statuses)
        (tmp_path / "password").write_text(LOGIN.password)
        mirror.await_level({Name(topic, 0): 1})


def test_properties_that_cannot_be_used_are_explained_and_asked_again(
    source: BrokerProcess, target: BrokerProcess, topic: str
) -> None:
    properties = properties_of(source, "PLAIN", sasl_password="${file:../etc/passwd}")
    with run_mirror(target, source.kafka_bootstrap, topic, source=properties) as mirror:
        status = mirror.await_status(lambda status: status["state"] == "failed")
        assert "must be the name of a file in the directory" in status["last_error"]
        assert mirror.process.poll() is None


def test_a_mirror_ends_when_a_broker_of_a_cluster_is_silent(
    source: BrokerProcess, target: BrokerProcess
) -> None:
    """It is paused, and another one is about to run the mirror."""
    environment = {"STELE_LEASE_SILENCE": "0.5"}
    with run_mirror(target, source.kafka_bootstrap, "none", environment=environment) as mirror:
        assert mirror.process.wait(TIMEOUT_S) == 0


def test_a_certificate_for_another_host_is_not_trusted_unless_the_name_is_not_checked(
    authority: Authority, tmp_path: Path
) -> None:
    pair = authority.issue("elsewhere", "elsewhere.example")
    tls = BrokerTls(certificate_file=pair.certificate_file, key_file=pair.key_file, ca_file=authority.ca_file)
    with run_broker(tmp_path / "source", environment=tls.environment) as source:
        properties = {"security.protocol": "SSL", "ssl.ca.location": str(authority.ca_file)}
        with pytest.raises(SourceRefused, match="not trusted: IP address mismatch"):
            connect(source, properties)
        connect(source, properties | {"ssl.endpoint.identification.algorithm": "none"})


@pytest.mark.long
def test_rules_and_quotas_are_copied_and_what_cannot_be_is_named(
    source: BrokerProcess, target: BrokerProcess, topic: str
) -> None:
    put(source, topic, "a")
    rule = {
        "resource_type": "TOPIC",
        "resource_name": topic,
        "pattern_type": "LITERAL",
        "principal": "User:bob",
        "host": "*",
        "operation": "READ",
        "permission": "ALLOW",
    }
    of_cluster = rule | {"resource_type": "CLUSTER", "resource_name": "kafka-cluster", "operation": "ALTER"}
    quota = {"entity": {"user": "bob"}, "values": {"producer_byte_rate": 1e6}}
    with http(source) as client:
        client.post("/v1/acls", json={"acls": [rule, of_cluster]}).raise_for_status()
        client.patch("/v1/quotas", json=quota).raise_for_status()
    properties = properties_of(source, "PLAIN")
    with (
        run_mirror(
            target, source.kafka_bootstrap, topic, source=properties, environment=SECRETS, acls=True
        ) as mirror,
        http(target) as here,
    ):
        status = mirror.await_status(lambda status: any("user ada" in text for text in status["not_copied"]))
        assert any("User:bob ALTER on CLUSTER" in text for text in status["not_copied"])
        assert rule in here.get("/v1/acls").json()["acls"]
        assert quota in here.get("/v1/quotas").json()["quotas"]
        assert not any(one["resource_type"] == "CLUSTER" for one in here.get("/v1/acls").json()["acls"])


@pytest.mark.long
def test_a_source_that_was_set_back_stops_the_copy(tmp_path: Path, target: BrokerProcess, topic: str) -> None:
    """The directory of an earlier state, with other records since: the offsets grow past those of the copy."""
    with run_broker(tmp_path / "source") as source:
        put(source, topic, *map(str, range(50)))
        put(source, f"{topic}-sound", "a")
        source.stop()
        shutil.copytree(source.data_dir, tmp_path / "earlier")
        source.start()
        put(source, topic, *map(str, range(50)))
        with run_mirror(target, source.kafka_bootstrap, f"{topic}.*") as mirror:
            mirror.await_level({Name(topic, 0): 100, Name(f"{topic}-sound", 0): 1})
            source.kill()
            mirror.await_status(lambda status: status["state"] == "failed")
            shutil.rmtree(source.data_dir)
            shutil.copytree(tmp_path / "earlier", source.data_dir)
            source.start()
            put(source, topic, *(f"other {number}" for number in range(70)))
            put(source, f"{topic}-sound", "b")
            status = mirror.await_status(
                lambda status: status["stopped"] == 1 and "copy" in (status["last_error"] or "")
            )
            assert status["state"] == "failed"
            assert partition_of(status, topic)["state"] == "diverged"
            assert "100" in partition_of(status, topic)["error"]
            mirror.await_status(lambda status: partition_of(status, f"{topic}-sound").get("offset") == 2)
        assert read_raw_of(target, topic).end == 100


def read_raw_of(broker: BrokerProcess, topic: str) -> Any:
    assert broker.login is not None
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": broker.login.user,
        "sasl.password": broker.login.password,
    }
    return read_raw(broker.kafka_bootstrap, topic, properties=properties)


def test_a_broker_runs_its_mirrors_and_promotes_their_copies(tmp_path: Path, topic: str) -> None:
    with (
        run_broker(tmp_path / "source") as source,
        run_broker(tmp_path / "target") as target,
        http(target) as here,
    ):
        put(source, topic, *map(str, range(100)))

        def status() -> dict[str, Any]:
            return here.get("/v1/mirrors/prod").raise_for_status().json()

        body = {"from": source.kafka_bootstrap, "topics": f"{topic}.*", "rate": 10_000_000}
        here.put("/v1/mirrors/prod", json=body).raise_for_status()
        eventually(lambda: status()["state"] == "level", "the mirror is level")
        assert_equal(source.kafka_bootstrap, target.kafka_bootstrap, topic)
        refused = here.post(f"/v1/topics/{topic}/records", json={"records": [{"value": "x"}]})
        assert refused.status_code == 409
        put(source, f"{topic}-second", "a")
        eventually(
            lambda: partition_of(status(), f"{topic}-second").get("offset") == 1, "a new topic is copied"
        )
        here.post("/v1/mirrors/prod/promote", json={"topic": topic}).raise_for_status()
        put(target, topic, "mine")
        # The mirror goes on with the other one, and leaves this one alone.
        put(source, topic, "not mine")
        put(source, f"{topic}-second", "b")
        eventually(
            lambda: partition_of(status(), f"{topic}-second").get("offset") == 2, "the other one is copied"
        )
        assert status()["state"] == "level"
        assert any("promoted" in text for text in status()["not_copied"])
        with Client(target.binary_url) as client:
            records = [*client.fetch(topic, offset=99).records, *client.fetch(topic, offset=100).records]
            assert [(record.offset, record.value) for record in records] == [(99, b"99"), (100, b"mine")]


def test_brokers_with_logins_and_tls_copy_to_each_other(
    source: BrokerProcess, target: BrokerProcess, topic: str
) -> None:
    """Outward mirrors, which log in to both sides; offsets stay equal, and committed ones follow."""
    to_target = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": BrokerLogin().user,
        "sasl.password": "${env:STELE_MIRROR_SECRET_TARGET}",
    }
    with http(source) as at_source, http(target) as at_target:
        for here, broker, other, properties in (
            (at_source, source, target, to_target),
            (at_target, target, source, properties_of(source, "SCRAM-SHA-512")),
        ):
            name = f"{topic}-of-{'source' if broker is source else 'target'}"
            put(broker, name, *map(str, range(100)))
            offsets = {"offsets": [{"topic": name, "partition": 0, "offset": 42, "metadata": "x"}]}
            here.put(f"/v1/groups/{name}/offsets", json=offsets).raise_for_status()
            body = {"to": other.kafka_bootstrap, "topics": name, "groups": name, "target": properties}
            here.put(f"/v1/mirrors/{name}", json=body).raise_for_status()

            def status(here: httpx.Client = here, name: str = name) -> dict[str, Any]:
                return here.get(f"/v1/mirrors/{name}").raise_for_status().json()

            eventually(lambda status=status: status()["state"] == "level", "the mirror is level")
            with Client(other.binary_url) as client:
                records = client.fetch(name, offset=0).records
            assert [record.value for record in records] == [b"%d" % number for number in range(100)]
            there = at_target if here is at_source else at_source

            def committed(there: httpx.Client = there, name: str = name) -> list[int]:
                found = there.get(f"/v1/groups/{name}").json().get("partitions", ())
                return [one["committed"] for one in found]

            eventually(lambda committed=committed: committed() == [42], "the group is at 42")
            here.delete(f"/v1/mirrors/{name}").raise_for_status()


def committed(broker: BrokerProcess, group: str) -> list[int]:
    """Return the offsets of a group in the order of the partitions; nothing if there is no group."""
    with http(broker) as client:
        document = client.get(f"/v1/groups/{group}").json()
    return [one["committed"] for one in document.get("partitions", ())]


def commit(broker: BrokerProcess, group: str, topic: str, offset: int, *, joins: bool = False) -> None:
    """Commit an offset, as an administrator does, or as a member."""
    options = {"bootstrap.servers": broker.kafka_bootstrap, "group.id": group, "enable.auto.commit": False}
    consumer = Consumer(options)
    if joins:
        consumer.subscribe([topic])
        eventually(lambda: bool(consumer.poll(0.1) or consumer.assignment()), "the member has its partition")
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def test_a_promotion_brings_what_the_source_has_by_then(tmp_path: Path, topic: str) -> None:
    with (
        run_broker(tmp_path / "source") as source,
        run_broker(tmp_path / "target") as target,
        http(target) as here,
    ):
        put(source, topic, "a")
        body = {"from": source.kafka_bootstrap, "topics": f"{topic}.*", "groups": ".*"}
        here.put("/v1/mirrors/prod", json=body).raise_for_status()
        eventually(lambda: here.get("/v1/mirrors/prod").json()["state"] == "level", "the mirror is level")
        # Neither its next status nor the next look at topics and groups is waited for.
        put(source, topic, *map(str, range(500)))
        put(source, f"{topic}-new", "a", partitions=3)
        commit(source, "g", topic, 499)
        answer = here.post("/v1/mirrors/prod/promote").raise_for_status().json()
        assert answer["unfinished"] is None
        assert [one["topic"] for one in answer["promoted"]] == [topic, f"{topic}-new"]
        assert_equal(source.kafka_bootstrap, target.kafka_bootstrap, topic)
        assert read_raw(target.kafka_bootstrap, topic).end == 501
        assert committed(target, "g") == [499]


def test_a_promotion_does_not_wait_for_a_source_that_has_gone(tmp_path: Path, topic: str) -> None:
    with run_broker(tmp_path / "target") as target, http(target) as here:
        with run_broker(tmp_path / "source") as source:
            put(source, topic, "a")
            body = {"from": source.kafka_bootstrap, "topics": topic, "groups": ".*"}
            here.put("/v1/mirrors/prod", json=body).raise_for_status()
            eventually(lambda: here.get("/v1/mirrors/prod").json()["state"] == "level", "the mirror is level")
            source.kill()
            # As it stays, for an hour as for a moment: what was known last, and that it is not known how old that is.
            eventually(lambda: here.get("/v1/mirrors/prod").json()["state"] == "failed", "the source is away")
            away = here.get("/v1/mirrors/prod").json()
            assert away["last_error"]
            assert partition_of(away, topic)["state"] == "waiting"
            eventually(
                lambda: here.get("/v1/mirrors/prod").json()["lag_seconds"] > away["lag_seconds"],
                "it gets older",
            )
        answer = here.post("/v1/mirrors/prod/promote").raise_for_status().json()
        assert "127.0.0.1" in answer["unfinished"]
        put(target, topic, "mine")
        assert read_raw(target.kafka_bootstrap, topic).end == 2


@pytest.mark.long
@pytest.mark.parametrize("is_paused", [True, False])
def test_a_promotion_says_that_no_process_has_finished_the_copies(
    tmp_path: Path, topic: str, is_paused: bool
) -> None:
    with (
        run_broker(tmp_path / "source") as source,
        run_broker(tmp_path / "target") as target,
        http(target) as here,
    ):
        put(source, topic, "a")
        body: dict[str, Any] = {"from": source.kafka_bootstrap, "topics": topic}
        here.put("/v1/mirrors/prod", json=body).raise_for_status()
        eventually(lambda: here.get("/v1/mirrors/prod").json()["state"] == "level", "the mirror is level")
        if is_paused:
            here.put("/v1/mirrors/prod", json={**body, "paused": True}).raise_for_status()
        else:
            for pid in mirror_pids(target.pid):
                os.kill(pid, signal.SIGKILL)
            eventually(lambda: here.get("/v1/mirrors/prod").json()["state"] == "failed", "it has ended")
        put(source, topic, "b")
        promoted = run_stele("mirror", "promote", "prod", "--yes", "--json", "--url", target.http_url)
        answer = json.loads(promoted.stdout)
        assert ("is paused" if is_paused else "ended with code -9") in answer["unfinished"]
        assert f"not all of the source may be copied: {answer['unfinished']}" in promoted.stderr.decode()
        assert read_raw(target.kafka_bootstrap, topic).end == 1


@pytest.mark.long
def test_what_the_source_deletes_before_it_is_copied_is_said(tmp_path: Path, topic: str) -> None:
    with run_broker(tmp_path / "source") as source, run_broker(tmp_path / "target") as target:
        put(source, topic, *map(str, range(10)))
        with run_mirror(target, source.kafka_bootstrap, topic) as mirror:
            assert mirror.await_level({Name(topic, 0): 10})["not_copied"] == []
        put(source, topic, *map(str, range(10)))
        delete_before(source, topic, 15)
        with run_mirror(target, source.kafka_bootstrap, topic) as mirror:
            status = mirror.await_level({Name(topic, 0): 20})
            gap = f"{topic}-0: the source deleted offsets 10 to 14 before they were copied"
            assert status["not_copied"] == [gap]
            assert_equal(source.kafka_bootstrap, target.kafka_bootstrap, topic)
            # Nothing new comes, and the beginning follows all the same.
            delete_before(source, topic, 17)
            eventually(
                lambda: read_raw(target.kafka_bootstrap, topic).start == 17, "what is deleted is deleted"
            )


def delete_before(broker: BrokerProcess, topic: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.kafka_bootstrap})
    deleted = cast("dict[Any, Any]", admin.delete_records([TopicPartition(topic, 0, offset)]))
    for future in deleted.values():
        future.result(TIMEOUT_S)


@pytest.mark.long
def test_a_group_that_has_moved_here_is_not_set_back(tmp_path: Path, topic: str) -> None:
    with run_broker(tmp_path / "source") as source, run_broker(tmp_path / "target") as target:
        put(source, topic, *map(str, range(10)))
        commit(source, "moved", topic, 4)
        for number in range(2):
            # Each is a process of its own, which does not know what the one before has written.
            with run_mirror(target, source.kafka_bootstrap, topic, groups=".*") as mirror:
                mirror.await_level({Name(topic, 0): 10})
                if number == 0:
                    eventually(lambda: committed(target, "moved") == [4], "the offset is copied")
                    commit(target, "moved", topic, 8, joins=True)
                commit(source, f"later-{number}", topic, 1)
                eventually(
                    lambda number=number: committed(target, f"later-{number}") == [1], "a later one is copied"
                )
                assert committed(target, "moved") == [8]
                if number == 1:
                    commit(source, "moved", topic, 6)
                    eventually(lambda: committed(target, "moved") == [6], "what was set there is copied")


@pytest.mark.long
def test_a_topic_that_was_deleted_at_the_source_may_be_deleted_here(tmp_path: Path, topic: str) -> None:
    gone = f"{topic}-gone"
    with run_broker(tmp_path / "source") as source, run_broker(tmp_path / "target") as target:
        put(source, topic, "a")
        put(source, gone, "b")
        with run_mirror(target, source.kafka_bootstrap, f"{topic}.*") as mirror:
            mirror.await_level({Name(topic, 0): 1, Name(gone, 0): 1})
            with Client(source.binary_url) as client:
                client.delete_topic(gone)
            # It may be that the mirror may not see it any more: that is not level.
            status = mirror.await_status(lambda status: status["state"] == "copying")
            assert "no longer exists at the source" in status["last_error"]
            with Client(target.binary_url) as client:
                client.delete_topic(gone)
            assert mirror.await_level()["last_error"] is None


def test_a_broker_of_the_source_that_is_away_keeps_no_other_groups_back(tmp_path: Path, topic: str) -> None:
    with run_broker(tmp_path / "source") as source, run_broker(tmp_path / "target") as target:
        put(source, topic, "a", "b")
        put(target, topic, "a", "b")
        commit(source, "g", topic, 1)
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            away = Address(*nobody.getsockname())

            async def copy() -> None:
                (address,) = addresses(source.kafka_bootstrap)
                there, here = Source([address], lambda: parse({}, mirror="m")), SteleTarget(target.binary_url)
                # Both before and after the one that answers.
                await there.know({1: away, 2: address, 3: away})
                read = partial(reads.read_groups, there, re.compile(".*"))
                groups = Groups(read, here, end_of=lambda name: 2)
                try:
                    with pytest.raises(SourceUnavailable):
                        await groups.copy()
                finally:
                    await there.close()
                    await here.close()

            asyncio.run(copy())
        assert committed(target, "g") == [1]


def test_a_transaction_that_is_open_in_a_copy_ends_at_its_source_alone(tmp_path: Path, topic: str) -> None:
    """Not by a restart of the broker, nor by an administrator, both of which abort what hangs elsewhere."""
    with run_broker(tmp_path / "source") as source, run_broker(tmp_path / "target") as target:
        put(source, topic, "a")
        writer = Producer({"bootstrap.servers": source.kafka_bootstrap, "transactional.id": topic})
        writer.init_transactions(60)
        writer.begin_transaction()
        # Larger than a request without records may be.
        writer.produce(topic, b"x" * 900_000, partition=0)
        writer.flush(60)
        with run_mirror(target, source.kafka_bootstrap, topic) as mirror:
            mirror.await_level({Name(topic, 0): 2})
            target.kill()
            target.start()
            mirror.await_level({Name(topic, 0): 2})
            assert_equal(source.kafka_bootstrap, target.kafka_bootstrap, topic)
            with http(target) as here:
                path = f"/v1/topics/{topic}/partitions/0/transactions"
                (opened,) = here.get(path).raise_for_status().json()["transactions"]
                refused = here.delete(f"{path}/{opened['producer_id']}")
                assert refused.status_code == 409, refused.text
            writer.commit_transaction(60)
            mirror.await_level({Name(topic, 0): 3})
            assert_equal(source.kafka_bootstrap, target.kafka_bootstrap, topic)


@pytest.mark.long
def test_batches_of_several_megabytes_are_copied(tmp_path: Path, topic: str) -> None:
    with run_broker(tmp_path / "source") as source, run_broker(tmp_path / "target") as target:
        with Client(source.binary_url) as client:
            client.create_topic(topic, configs={"max.message.bytes": "16000000"})
        options = {"bootstrap.servers": source.kafka_bootstrap, "message.max.bytes": 15_000_000}
        writer = Producer(options)
        for size in (14_000_000, 1_100_000, 10, 4_000_000):
            writer.produce(topic, bytes(size), partition=0)
            assert writer.flush(60) == 0
        with run_mirror(target, source.kafka_bootstrap, topic) as mirror:
            mirror.await_level({Name(topic, 0): 4})
        assert_equal(source.kafka_bootstrap, target.kafka_bootstrap, topic)
