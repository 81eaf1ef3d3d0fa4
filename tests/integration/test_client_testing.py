"""The pytest plugin and the broker process behind it."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from stele import AuthenticationError, Client, SteleClientError
from stele.broker_process import BrokerLogin, BrokerProcess, BrokerStartError, run_broker

from tests.support.users_pytest import run_users_tests

USERS_TEST = """
from stele import Client

def test_a_fresh_broker(stele_broker):
    with Client(stele_broker.binary_url) as client:
        assert client.topics() == []
        assert client.produce("orders", b"first").offset == 0

def test_another_fresh_broker(stele_broker):
    with Client(stele_broker.http_url) as client:
        assert client.topics() == []

def test_a_shared_broker(stele_broker_session):
    with Client(stele_broker_session.http_url) as client:
        client.ping()
"""


def test_a_users_test_gets_a_broker_by_naming_a_fixture(tmp_path: Path) -> None:
    (tmp_path / "test_orders.py").write_text(USERS_TEST)
    done = run_users_tests(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


@pytest.mark.long
@pytest.mark.cold_start
def test_a_restart_keeps_ports_and_data(stele_broker: BrokerProcess) -> None:
    ports, pid = (stele_broker.http_port, stele_broker.binary_port), stele_broker.pid
    with Client(stele_broker.binary_url) as client:
        client.produce("t", b"x")
        stele_broker.restart()
        assert (stele_broker.http_port, stele_broker.binary_port) == ports
        assert stele_broker.pid != pid
        assert [record.value for record in client.fetch("t").records] == [b"x"]


def test_its_stderr_keeps_what_it_said_first(tmp_path: Path) -> None:
    with run_broker(tmp_path, arguments=["--trace-connections", "--hex"]) as broker:
        # librdkafka outlives the broker here, and would say so for ever.
        admin = AdminClient({"bootstrap.servers": broker.kafka_bootstrap, "log_level": 0})
        admin.list_topics(timeout=60)
        first = broker.stderr[:100]
        assert first
        while len(broker.stderr) < 50_000:
            admin.list_topics(timeout=60)
        assert broker.stderr.startswith(first)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a port be held for a listener")
def test_nobody_else_gets_the_ports_of_a_broker_that_is_down(stele_broker: BrokerProcess) -> None:
    stele_broker.kill()
    for port in (stele_broker.http_port, stele_broker.binary_port, stele_broker.kafka_port):
        with socket.socket() as other, pytest.raises(OSError, match="Address already in use"):
            other.bind((stele_broker.host, port))
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((stele_broker.host, port))
    stele_broker.start()
    with Client(stele_broker.binary_url) as client:
        client.ping()


@pytest.mark.long
@pytest.mark.cold_start
def test_stop_is_clean_and_kill_is_not(stele_broker: BrokerProcess) -> None:
    assert stele_broker.stop() == 0
    assert not stele_broker.is_running
    with pytest.raises(RuntimeError, match="not running"):
        _ = stele_broker.pid
    stele_broker.start()
    stele_broker.kill()
    assert not stele_broker.is_running
    with Client(stele_broker.binary_url, connect_timeout_s=0.1) as client, pytest.raises(SteleClientError):
        client.ping()


def test_a_broker_that_does_not_start_shows_why(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises((BrokerStartError, OSError)), run_broker(tmp_path / "file" / "data"):
        pass
    with (
        pytest.raises(BrokerStartError, match="binary_port"),
        run_broker(arguments=["--binary-port", "99999"]),
    ):
        pass


def test_two_brokers_do_not_share_a_data_directory(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with (
        run_broker(data_dir),
        pytest.raises(BrokerStartError, match="in use by another broker"),
        run_broker(data_dir),
    ):
        pass


def test_settings_are_given_as_arguments_or_environment(tmp_path: Path) -> None:
    with (
        run_broker(tmp_path / "data", environment={"STELE_NUM_PARTITIONS": "3"}) as broker,
        Client(broker.binary_url) as client,
    ):
        client.produce("t", b"x")
        assert client.describe_topic("t").partitions == 3
    with (
        run_broker(arguments=["--no-auto-create-topics-enable"]) as broker,
        Client(broker.http_url) as client,
        pytest.raises(SteleClientError),
    ):
        client.produce("t", b"x")


def test_a_broker_with_logins_knows_its_user_after_a_restart_too() -> None:
    login = BrokerLogin(user="tester", password="p@ss/word:1")
    assert login.password not in repr(login)
    with run_broker(login=login) as broker:
        for url in (broker.binary_url, broker.http_url):
            with Client(url) as client:
                client.produce("guarded", b"x")
        broker.restart()
        with Client(broker.binary_url) as client:
            assert [record.value for record in client.fetch("guarded").records] == [b"x", b"x"]
        with (
            Client(f"stele://{broker.host}:{broker.binary_port}") as client,
            pytest.raises(AuthenticationError),
        ):
            client.topics()
