"""One SparkSession for each module, small, on this very interpreter; and what happens where Spark is missing."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from stele import Client
from stele.broker_process import BrokerProcess
from stele.spark.java import SparkMissingError, require_spark

from tests.support.brokers import run_broker_or_cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_numbers = itertools.count()


def _missing() -> str | None:
    try:
        require_spark()
    except SparkMissingError as error:
        return str(error)
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith("tests/integration/spark/"):
            item.add_marker(pytest.mark.spark)
            # PySpark leaves sockets to the garbage collector.
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))


@pytest.fixture(scope="session", autouse=True)
def spark_is_there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    why = _missing()
    if why is not None:
        if os.environ.get("CI"):
            pytest.fail(why)
        pytest.skip(why)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SPARK_HOME", str(_spark_home(tmp_path_factory.mktemp("spark-home"))))
        yield


def _spark_home(home: Path) -> Path:
    """Make a ``SPARK_HOME`` without ``pyspark.zip``.

    Workers of Python take PySpark from there, without bytecode: each kind of worker compiles it, for over a second.
    """
    import pyspark

    for entry in Path(pyspark.__path__[0]).iterdir():
        if entry.name != "python":
            (home / entry.name).symlink_to(entry)
    return home


def make_session(name: str) -> SparkSession:
    """The smallest that does: two cores, a heap of 1 GB, no web page."""
    from pyspark.sql import SparkSession

    # Workers must be able to import what the driver can.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    return (
        SparkSession.builder.master("local[2]")
        .appName(name)
        .config("spark.driver.memory", "1g")
        # A session of tests ends before code of the optimizing compiler would pay.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )


@pytest.fixture(scope="module")
def spark(request: pytest.FixtureRequest, spark_is_there: None) -> Iterator[SparkSession]:
    session = make_session(str(request.node.name))
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def broker(spark_is_there: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with run_broker_or_cluster(tmp_path_factory.mktemp("brokers")) as running:
        yield running


@pytest.fixture(scope="module")
def client(broker: BrokerProcess) -> Iterator[Client]:
    with Client(broker.binary_url) as connected:
        yield connected


@pytest.fixture
def topic() -> str:
    """A name nobody else uses, for the broker is shared."""
    return f"spark-{next(_numbers)}"


@pytest.fixture
def fill(client: Client) -> Callable[..., None]:
    """Put ``count`` records ``v<first>…`` into each partition of a topic."""
    from stele import NewRecord

    def put(topic: str, count: int, *, partitions: int = 1, first: int = 0) -> None:
        for partition in range(partitions):
            client.produce_many(
                topic,
                [
                    NewRecord(b"v%d" % i, key=b"k%d" % (i % 5), partition=partition)
                    for i in range(first, first + count)
                ],
            )

    return put
