"""The client of the schema registry against a broker, for tasks and for threads."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
import trustme
from stele import (
    AsyncSchemaRegistry,
    AuthenticationError,
    IncompatibleSchemaError,
    Reference,
    RegistryError,
    Schema,
    SchemaRegistry,
    UnknownSchemaError,
)
from stele.broker_process import BrokerLogin, BrokerProcess, BrokerTls, run_broker

from tests.integration.test_client_registry_failures import ask, both

V1 = Schema('{"type":"record","name":"A","fields":[{"name":"x","type":"int"}]}')
V2 = Schema(
    '{"type":"record","name":"A","fields":[{"name":"x","type":"int"},{"name":"y","type":"int","default":0}]}'
)
# Old records have no y.
V3 = Schema('{"type":"record","name":"A","fields":[{"name":"x","type":"int"},{"name":"y","type":"string"}]}')


@both
def test_a_schema_is_registered_found_and_deleted(kind: str, broker: BrokerProcess) -> None:
    subject = f"life/of {kind}-value"

    def call(name: str, *arguments: Any, **options: Any) -> Any:
        return ask(kind, broker.registry_url, lambda client: getattr(client, name)(*arguments, **options))

    with pytest.raises(UnknownSchemaError):
        call("versions", subject)
    first = call("register", subject, V1)
    assert call("register", subject, V1) == first
    second = call("register", subject, V2)
    assert (first.version, second.version) == (1, 2)
    assert call("subjects", "life/of") == sorted([subject, *others(broker, subject)])
    assert call("versions", subject) == [1, 2]
    assert call("version", subject) == call("version", subject, 2)
    assert call("version", subject, 1).id == first.id
    found = call("lookup", subject, V1)
    assert (found.id, found.version, found.guid) == (first.id, 1, call("version", subject, 1).guid)
    by_id = call("schema", first.id)
    assert by_id.text == call("schema", found.guid).text
    assert {one.version for one in call("schemas", subject)} == {1, 2}
    assert [one.version for one in call("schemas", subject, latest_only=True)] == [2]
    with pytest.raises(UnknownSchemaError):
        call("lookup", subject, V3)
    assert call("delete_version", subject, 1) == 1
    assert call("versions", subject) == [2]
    assert call("versions", subject, deleted=True) == [1, 2]
    # A record may have it.
    assert call("schema", first.id).text == by_id.text
    assert call("delete_subject", subject) == [2]
    assert call("delete_subject", subject, permanent=True) == [1, 2]
    with pytest.raises(UnknownSchemaError):
        call("version", subject, deleted=True)


def others(broker: BrokerProcess, subject: str) -> list[str]:
    with SchemaRegistry(broker.registry_url) as registry:
        return [name for name in registry.subjects("life/of") if name != subject]


@both
def test_a_level_decides_what_may_be_registered(kind: str, broker: BrokerProcess) -> None:
    subject = f"level-{kind}"

    def call(name: str, *arguments: Any, **options: Any) -> Any:
        return ask(kind, broker.registry_url, lambda client: getattr(client, name)(*arguments, **options))

    call("register", subject, V1)
    assert call("config_of", subject)["compatibilityLevel"] == "BACKWARD"
    assert call("check", subject, V2)
    refused = call("check", subject, V3)
    assert not refused
    assert refused.messages
    assert not call("check", subject, V3, 1)
    with pytest.raises(IncompatibleSchemaError, match="y"):
        call("register", subject, V3)
    call("set_config", subject, compatibility="NONE")
    assert call("config_of", subject)["compatibilityLevel"] == "NONE"
    assert call("register", subject, V3).version == 2
    call("delete_config", subject)
    assert call("config_of", subject)["compatibilityLevel"] == "BACKWARD"
    assert call("config_of")["compatibilityLevel"] == "BACKWARD"


@both
def test_a_mode_decides_who_may_write(kind: str, broker: BrokerProcess) -> None:
    subject = f"mode-{kind}"

    def call(name: str, *arguments: Any, **options: Any) -> Any:
        return ask(kind, broker.registry_url, lambda client: getattr(client, name)(*arguments, **options))

    assert call("set_mode", "READONLY", subject) == "READONLY"
    with pytest.raises(RegistryError) as raised:
        call("register", subject, V1)
    assert raised.value.error_code == 42205
    assert call("mode_of", subject) == "READONLY"
    assert call("delete_mode", subject) == "READONLY"
    assert call("mode_of", subject) == call("mode_of") == "READWRITE"
    call("register", subject, V1)


@both
def test_what_a_schema_uses_is_found_through_any_number_of_others(kind: str, broker: BrokerProcess) -> None:
    street = Schema('{"type":"record","namespace":"n","name":"Street","fields":[]}')
    address = Schema(
        '{"type":"record","namespace":"n","name":"Address","fields":[{"name":"s","type":"Street"}]}',
        references=(Reference("n.Street", f"street-{kind}", 1),),
    )
    order = Schema(
        '{"type":"record","namespace":"n","name":"Order","fields":'
        '[{"name":"a","type":"Address"},{"name":"b","type":["null","Street"]}]}',
        references=(
            Reference("n.Address", f"address-{kind}", 1),
            Reference("n.Street", f"street-{kind}", 1),
        ),
    )

    def call(name: str, *arguments: Any, **options: Any) -> Any:
        return ask(kind, broker.registry_url, lambda client: getattr(client, name)(*arguments, **options))

    used = call("register", f"street-{kind}", street)
    call("register", f"address-{kind}", address)
    made = call("register", f"order-{kind}", order)
    assert made.id in call("referenced_by", f"street-{kind}", 1)
    parsed = call("parse", call("schema", made.id))
    assert parsed.decode(parsed.encode({"a": {"s": {}}, "b": None})) == {"a": {"s": {}}, "b": None}
    with pytest.raises(RegistryError) as raised:
        call("delete_version", f"street-{kind}", 1)
    assert raised.value.error_code == 42206
    assert call("schema", used.id).text


async def test_many_tasks_and_threads_use_one_client_each(broker: BrokerProcess) -> None:
    async with AsyncSchemaRegistry(broker.registry_url) as registry:
        registered = await asyncio.gather(*(registry.register("many", V1) for _ in range(50)))
    assert len({one.id for one in registered}) == 1
    found: list[int] = []
    with SchemaRegistry(broker.registry_url) as blocking:
        threads = [
            threading.Thread(target=lambda: found.append(blocking.register("many", V1).id)) for _ in range(20)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == [registered[0].id] * 20


@both
def test_logins_and_certificates_are_those_of_other_clients(kind: str, tmp_path: Path) -> None:
    ca = trustme.CA()
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    certificate = ca.issue_cert("127.0.0.1", "localhost")
    certificate.private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    (tmp_path / "server.pem").chmod(0o600)
    tls = BrokerTls(
        certificate_file=tmp_path / "server.pem",
        key_file=tmp_path / "server.pem",
        ca_file=tmp_path / "ca.pem",
    )
    login = BrokerLogin()
    with run_broker(tmp_path / "data", tls=tls, login=login) as broker:
        url = f"https://{broker.host}:{broker.registry_port}"
        options = {"ca_file": tmp_path / "ca.pem", "user": login.user}
        assert ask(kind, url, lambda client: client.subjects(), password=login.password, **options) == []
        with pytest.raises(AuthenticationError):
            ask(kind, url, lambda client: client.subjects(), password="wrong", **options)
        with pytest.raises(AuthenticationError):
            ask(kind, url, lambda client: client.subjects(), ca_file=tmp_path / "ca.pem")
