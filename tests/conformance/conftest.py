"""One specification for every client: the broker, a driver of each client, topics and groups of one's own.

``STELE_CONFORMANCE_CLIENTS`` (a comma list, or ``all``) chooses the clients,
``STELE_CONFORMANCE_BOOTSTRAP`` a broker that runs already,
``STELE_TEST_BROKERS`` how many of our own are started,
``STELE_CONFORMANCE_TABLE`` the page whose table is written.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from stele.testing import BrokerProcess

from tests.conformance.clients import INSTALL_TIMEOUT_S, REFERENCE, Client, Missing, selected
from tests.conformance.driver import Driver
from tests.conformance.support import MakeTopic, StartDriver, StartLocked, a_name
from tests.conformance.table import NOT_OFFERED, Outcomes, note_in_reports
from tests.support.brokers import BROKERS, run_broker_or_cluster
from tests.support.time_limit import LIMIT_S
from tests.support.waiting import eventually

BOOTSTRAP = os.environ.get("STELE_CONFORMANCE_BOOTSTRAP")

BROKER_SETTINGS = {
    # Three seconds for further members to come would be waited for in every test of a group.
    "STELE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    # A test waits for two passes of retention.
    "STELE_LOG_RETENTION_CHECK_INTERVAL_MS": "300",
}


def pytest_configure(config: pytest.Config) -> None:
    page = os.environ.get("STELE_CONFORMANCE_TABLE")
    # The page is about one broker of Stele.
    if page and not BOOTSTRAP and BROKERS == 1:
        config.pluginmanager.register(Outcomes(Path(page)), "conformance-table")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith("tests/conformance/"):
            # The first test of a client downloads and compiles it.
            item.add_marker(pytest.mark.time_limit(LIMIT_S + INSTALL_TIMEOUT_S))
            note_in_reports(item)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "client" in metafunc.fixturenames:
        clients = selected(os.environ.get("STELE_CONFORMANCE_CLIENTS"))
        metafunc.parametrize("client", clients, ids=str, scope="session")


def _capability(request: pytest.FixtureRequest) -> str:
    marker = request.node.get_closest_marker("capability")
    assert marker, "a test of this suite says which capability it is about"
    return str(marker.args[0])


# ── the broker ──


@pytest.fixture(scope="session")
def stele_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Our own broker with all its listeners, or what stands for several with shared storage."""
    path = tmp_path_factory.mktemp("brokers")
    with run_broker_or_cluster(path, environment=BROKER_SETTINGS) as broker:
        yield broker


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest) -> str:
    if BOOTSTRAP:
        return BOOTSTRAP
    broker: BrokerProcess = request.getfixturevalue("stele_broker")
    return broker.kafka_bootstrap


@pytest.fixture
def stele(request: pytest.FixtureRequest) -> BrokerProcess:
    """Our own broker, for what has other listeners; skips where the tests run against another."""
    if BOOTSTRAP:
        pytest.skip("the broker at STELE_CONFORMANCE_BOOTSTRAP may have no other listeners")
    broker: BrokerProcess = request.getfixturevalue("stele_broker")
    return broker


# ── drivers ──


class Installer:
    """Installs each client once."""

    def __init__(self) -> None:
        self._missing: dict[str, str] = {}
        self._installed: set[str] = set()

    def install(self, client: Client) -> None:
        """Install the client; skips the test if that cannot be, and with ``CI`` fails it."""
        if client.name in self._installed:
            return
        if client.name not in self._missing:
            try:
                client.install()
            except Missing as missing:
                self._missing[client.name] = str(missing)
            else:
                self._installed.add(client.name)
                return
        message = f"{client.name}: {self._missing[client.name]}"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)


class DriverPool:
    """Drivers that wait for the next test: to start one costs up to a second."""

    def __init__(self, bootstrap: str, installer: Installer) -> None:
        self._bootstrap = bootstrap
        self._installer = installer
        self._idle: dict[str, list[Driver]] = {}

    def take(self, client: Client) -> Driver:
        idle = self._idle.setdefault(client.name, [])
        while idle:
            driver = idle.pop()
            if driver.is_clean:
                return driver
            driver.kill()
        self._installer.install(client)
        return Driver(client.command, self._bootstrap)

    def give_back(self, client: Client, driver: Driver) -> None:
        if driver.is_clean:
            self._idle.setdefault(client.name, []).append(driver)
        else:
            driver.kill()

    def close(self) -> None:
        for drivers in self._idle.values():
            for driver in drivers:
                driver.close()


@pytest.fixture(scope="session")
def installer() -> Installer:
    return Installer()


@pytest.fixture(scope="session")
def driver_pool(bootstrap: str, installer: Installer) -> Iterator[DriverPool]:
    pool = DriverPool(bootstrap, installer)
    yield pool
    pool.close()


@pytest.fixture
def start_driver(
    client: Client, driver_pool: DriverPool, request: pytest.FixtureRequest
) -> Iterator[StartDriver]:
    """Further drivers of the client under test, each a process of its own."""
    taken: list[Driver] = []

    def start() -> Driver:
        driver = driver_pool.take(client)
        taken.append(driver)
        _note(request, client, driver)
        return driver

    yield start
    for driver in taken:
        driver_pool.give_back(client, driver)


@pytest.fixture
def start_locked(
    client: Client, installer: Installer, request: pytest.FixtureRequest
) -> Iterator[StartLocked]:
    """Drivers of the client under test for a broker that requires logins."""
    started: list[Driver] = []

    def start(bootstrap: str, login_file: Path) -> Driver:
        installer.install(client)
        driver = Driver(client.command, bootstrap, login_file)
        started.append(driver)
        _note(request, client, driver)
        return driver

    yield start
    for driver in started:
        driver.close()


def _note(request: pytest.FixtureRequest, client: Client, driver: Driver) -> None:
    """Note the version for the table; skips the test if the client does not offer what it is about."""
    name = ("client", f"{client.name} {driver.version}")
    if name not in request.node.user_properties:
        request.node.user_properties.append(name)
    capability = _capability(request)
    if not driver.offers(capability):
        pytest.skip(f"{client.name} {NOT_OFFERED}: {capability}")


@pytest.fixture
def driver(start_driver: StartDriver) -> Driver:
    """The client under test."""
    return start_driver()


@pytest.fixture
def reference(driver_pool: DriverPool) -> Iterator[Driver]:
    """A client that is known to work: it makes topics, and writes what the one under test reads."""
    driver = driver_pool.take(REFERENCE)
    yield driver
    driver_pool.give_back(REFERENCE, driver)


# ── names ──


@pytest.fixture
def make_topic(reference: Driver) -> MakeTopic:
    def make(partitions: int = 1, configs: dict[str, str] | None = None) -> str:
        topic = a_name("topic")
        reference.create_topic(topic, partitions=partitions, configs=configs)
        # Apache Kafka's brokers hear of a topic a moment after its creation.
        eventually(lambda: topic in reference.list_topics(), "the topic is there")
        return topic

    return make


@pytest.fixture
def topic(make_topic: MakeTopic) -> str:
    """A topic of one partition."""
    return make_topic()


@pytest.fixture
def group() -> str:
    return a_name("group")
