"""Spark against a broker that requires TLS and logins, as docs/security.md and docs/spark.md set it up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import click
import pytest
from stele.spark import pipeline

from tests.support.locked_broker import PASSWORD, LockedBroker, locked_broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long

VALUES: list[bytes | None] = [b"v%d" % number for number in range(50)]
TIMEOUT_S = 300
JOB = Path(__file__).with_name("login_job.py")


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LockedBroker]:
    with locked_broker(tmp_path_factory.mktemp("locked")) as broker:
        yield broker


@pytest.fixture
def user(locked: LockedBroker) -> str:
    return locked.add_user(may_do_everything=True)


@pytest.fixture
def source(locked: LockedBroker) -> str:
    topic = locked.make_topic()
    locked.write(topic, [value for value in VALUES if value is not None])
    return topic


def test_the_url_has_the_user_and_a_file_has_the_password(
    spark: SparkSession, locked: LockedBroker, user: str, source: str, tmp_path: Path
) -> None:
    sink = locked.make_topic()
    login = {
        "url": f"stele+tls://{user}@{locked.binary_address}?ca_file={quote(str(locked.ca_file))}",
        "passwordFile": str(locked.password_file()),
    }
    rows = spark.read.format("stele").options(**login).option("subscribe", source).load()
    rows.select("key", "value").write.format("stele").options(**login).option("topic", sink).mode(
        "append"
    ).save()
    assert sorted(locked.values(sink), key=str) == sorted(VALUES, key=str)

    frame = spark.readStream.format("stele").options(**login).option("subscribe", source)
    frame = frame.option("startingOffsets", "earliest").load().select("key", "value")
    writer = frame.writeStream.format("stele").options(**login).option("topic", sink)
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    query.awaitTermination(TIMEOUT_S)
    assert sorted(locked.values(sink), key=str) == sorted(VALUES * 2, key=str)
    assert locked.logins(user, listener="binary")


def test_a_stream_in_transactions_needs_the_rights_that_the_page_names(
    spark: SparkSession, locked: LockedBroker, source: str, tmp_path: Path
) -> None:
    user, sink, query_name = locked.add_user(), locked.make_topic(), f"copy-{uuid.uuid4().hex[:12]}"
    progress = f"__spark_commits.stream.{query_name}"
    locked.allow(user, "READ", "TOPIC", source)
    locked.allow(user, "WRITE", "TOPIC", sink)
    for operation in ("CREATE", "DESCRIBE", "READ", "WRITE"):
        locked.allow(user, operation, "TOPIC", progress)
    locked.allow(user, "WRITE", "TRANSACTIONAL_ID", f"spark-stream/{query_name}/", pattern="PREFIXED")
    login = {
        "url": f"stele+tls://{user}@{locked.binary_address}?ca_file={quote(str(locked.ca_file))}",
        "passwordFile": str(locked.password_file()),
    }
    frame = spark.readStream.format("stele").options(**login).option("subscribe", source)
    frame = frame.option("startingOffsets", "earliest").load().select("key", "value")
    writer = frame.writeStream.format("stele").options(**login).option("topic", sink)
    writer = writer.option("txnAppId", query_name).option("checkpointLocation", str(tmp_path))
    writer.trigger(availableNow=True).start().awaitTermination(TIMEOUT_S)
    assert sorted(locked.values(sink), key=str) == sorted(VALUES, key=str)
    denied = [
        line
        for line in map(json.loads, locked.audit_log.read_text().splitlines())
        if line["verdict"] == "denied" and line["principal"] == f"User:{user}"
    ]
    assert denied == []


def test_a_wrong_password_fails_the_query_and_is_not_shown(
    spark: SparkSession, locked: LockedBroker, user: str, source: str
) -> None:
    url = f"stele+tls://{user}@{locked.binary_address}?ca_file={quote(str(locked.ca_file))}"
    frame = spark.read.format("stele").option("url", url).option("subscribe", source)
    with pytest.raises(Exception, match=r"AuthenticationError|Authentication failed") as failed:
        frame.option("passwordFile", str(locked.password_file("not-her-password"))).load().collect()
    assert "not-her-password" not in str(failed.value)


def test_the_environment_has_the_login(locked: LockedBroker, user: str, source: str, tmp_path: Path) -> None:
    sink = locked.make_topic()
    environment = {
        **os.environ,
        "STELE_CA_FILE": str(locked.ca_file),
        "STELE_USER": user,
        "STELE_PASSWORD_FILE": str(locked.password_file()),
    }
    url = f"stele+tls://{locked.binary_address}"
    done = subprocess.run(
        [sys.executable, str(JOB), url, source, sink, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
        env=environment,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert sorted(locked.values(sink), key=str) == sorted(VALUES, key=str)


@pytest.mark.parametrize("is_there", [True, False], ids=["empty topic", "no topic"])
def test_a_pipeline_names_the_broker_without_the_password(
    locked: LockedBroker, user: str, *, is_there: bool
) -> None:
    """The URL may come from STELE_URL, where a password is allowed."""
    run = pipeline.Run(
        url=f"stele+tls://{user}:{PASSWORD}@{locked.binary_address}?ca_file={quote(str(locked.ca_file))}",
        topic=locked.make_topic() if is_there else f"none-{uuid.uuid4().hex[:12]}",
        out="out",
        master=None,
        trigger="available-now",
        checkpoint="checkpoint",
        max_offsets_per_trigger=1,
        plot=None,
    )
    with pytest.raises(click.ClickException, match=locked.binary_address) as refused:
        pipeline.require_topic(run)
    assert PASSWORD not in refused.value.message
