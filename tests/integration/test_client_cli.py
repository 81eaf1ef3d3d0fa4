"""The console script: what a person types, and what it answers."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from stele import Client, NewRecord
from stele.broker_process import BrokerProcess, run_broker

from tests.support.warm_processes import WarmProcess, run_stele


@pytest.fixture(params=["tcp", "http"])
def url(request: pytest.FixtureRequest, stele_broker_session: BrokerProcess) -> str:
    broker = stele_broker_session
    return broker.binary_url if request.param == "tcp" else broker.http_url


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return f"cli-{abs(hash(request.node.nodeid)) % 10**9}"


def stele(*arguments: str, url: str = "", stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return run_stele(*arguments, stdin=stdin, env={**os.environ, "STELE_URL": url} if url else None)


def out(*arguments: str, url: str = "", stdin: bytes = b"") -> str:
    done = stele(*arguments, url=url, stdin=stdin)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def test_lines_go_in_and_come_out(url: str, topic: str) -> None:
    done = stele("produce", topic, url=url, stdin=b"one\ntwo\r\n\nfour")
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith(b"4 records on disk in ")
    assert out("consume", topic, url=url) == "one\ntwo\n\nfour\n"
    assert out("consume", topic, "--from", "1", "--max", "1", url=url) == "two\n"


def test_keys_by_a_separator(url: str, topic: str) -> None:
    out("produce", topic, "--key-separator", ":", url=url, stdin=b"a:1\nb:2:3\n")
    assert out("consume", topic, "--keys", "--offsets", url=url) == "0\ta\t1\n1\tb\t2:3\n"
    done = stele("produce", topic, "--key-separator", ":", url=url, stdin=b"no separator\n")
    assert (done.returncode, done.stderr) == (1, b"Error: line 1 has no key separator ':'\n")


def test_ndjson_with_a_key_field(url: str, topic: str, tmp_path: Path) -> None:
    path = tmp_path / "orders.ndjson"
    path.write_bytes(b'{"customer": "ann", "n": 1}\n\n{"customer": 7, "n": 2}\n{"customer": null}\n')
    out("produce", topic, str(path), "--key-field", "customer", url=url)
    records = [json.loads(line) for line in out("consume", topic, "--format", "ndjson", url=url).splitlines()]
    assert [record["key"] for record in records] == ["ann", "7", None]
    assert records[0]["value"] == '{"customer": "ann", "n": 1}'
    assert (records[1]["offset"], records[1]["partition"], records[1]["headers"]) == (1, 0, [])
    done = stele("produce", topic, "--format", "ndjson", url=url, stdin=b"{}\nnot json\n")
    assert done.returncode == 1
    assert b"line 2 is not JSON" in done.stderr


def test_csv_in_and_out(url: str, topic: str, tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text('name,city\nann,"Köln, ""Dom"""\nbob,Ulm\n')
    out("produce", topic, str(path), "--key-field", "name", url=url)
    rows = list(csv.DictReader(io.StringIO(out("consume", topic, "--format", "csv", url=url))))
    assert [row["key"] for row in rows] == ["ann", "bob"]
    assert json.loads(rows[0]["value"]) == {"name": "ann", "city": 'Köln, "Dom"'}
    done = stele("produce", topic, "--format", "csv", url=url, stdin=b"a,b\n1,2\n1\n")
    assert done.returncode == 1
    assert b"does not have the columns" in done.stderr


def test_json_is_one_array(url: str, topic: str) -> None:
    with Client(url) as client:
        client.create_topic(topic)
        assert json.loads(out("consume", topic, "--format", "json", url=url)) == []
        client.produce_many(topic, [NewRecord(b"a", headers={"h": "1"}), NewRecord(b"\xff"), NewRecord(None)])
    first, second, third = json.loads(out("consume", topic, "--format", "json", url=url))
    assert (first["value"], first["headers"]) == ("a", [{"key": "h", "value": "1"}])
    assert (second["value_b64"], third["value"]) == ("/w==", None)


def test_text_with_everything_and_hex(url: str, topic: str) -> None:
    with Client(url) as client:
        client.produce(topic, bytes(range(60, 80)), headers={"h": "1"}, timestamp=1_763_664_000_123)
        client.produce(topic, None, key="k", timestamp=0)
    shown = ["--partitions", "--offsets", "--timestamps", "--keys", "--headers"]
    assert out("consume", topic, *shown, url=url).splitlines() == [
        "0\t0\t2025-11-20T18:40:00.123Z\tnull\th=1\t<=>?@ABCDEFGHIJKLMNO",
        "0\t1\t1970-01-01T00:00:00.000Z\tk\t\tnull",
    ]
    assert out("consume", topic, "--format", "hex", url=url).splitlines() == [
        f"── {topic}-0 offset 0  2025-11-20T18:40:00.123Z  key null",
        "00000000  3c 3d 3e 3f 40 41 42 43  44 45 46 47 48 49 4a 4b  |<=>?@ABCDEFGHIJK|",
        "00000010  4c 4d 4e 4f                                       |LMNO|",
        f"── {topic}-0 offset 1  1970-01-01T00:00:00.000Z  key k",
        "(null)",
    ]


def test_from_a_time(url: str, topic: str) -> None:
    with Client(url) as client:
        client.produce(topic, b"old", timestamp=0)
        client.produce(topic, b"new")
    assert out("consume", topic, "--from", "-1h", url=url) == "new\n"
    assert out("consume", topic, "--from", "2001-01-01T00:00Z", url=url) == "new\n"
    assert out("consume", topic, "--from", "latest", url=url) == ""
    done = stele("consume", topic, "--from", "yesterday", url=url)
    assert done.returncode == 2
    assert b"'yesterday' is not" in done.stderr


def test_a_table_has_the_newest_record_per_key(url: str, topic: str) -> None:
    with Client(url) as client:
        client.create_topic(topic, partitions=2, configs={"cleanup.policy": "compact"})
        assert out("table", topic, url=url) == ""
        for key, value, partition in (
            ("a", "1", 0),
            ("b", "1", 1),
            ("b", None, 1),
            ("c", "1", 1),
            ("a", "2", 0),
        ):
            client.produce(topic, value, key=key, partition=partition)
    assert out("table", topic, url=url) == "a\t2\nc\t1\n"
    assert out("table", topic, "--partition", "1", "--offsets", url=url) == "2\tc\t1\n"
    rows = json.loads(out("table", topic, "--format", "json", url=url))
    assert [(row["key"], row["value"], row["offset"]) for row in rows] == [("a", "2", 1), ("c", "1", 2)]


def test_one_key_of_a_table(url: str, topic: str) -> None:
    with Client(url) as client:
        client.create_topic(topic, partitions=2, configs={"cleanup.policy": "compact"})
        client.produce(topic, b"1", key="a", partition=1)
        client.produce(topic, b"1", key="b", partition=1)
        client.produce(topic, None, key="b", partition=1)
        client.produce(f"{topic}-plain", b"1")
    assert out("table", topic, "--key", "a", "--partitions", url=url) == "1\ta\t1\n"
    for arguments in (["--key", "b"], ["--key", "none"], ["--key", "a", "--partition", "0"]):
        done = stele("table", topic, *arguments, url=url)
        assert (done.returncode, done.stdout) == (1, b"")
        assert b"has no key" in done.stderr
    done = stele("table", f"{topic}-plain", url=url)
    assert done.returncode == 1
    assert b"is not compacted" in done.stderr
    for arguments in (["--follow"], ["--partition", "0", "--partition", "1"]):
        done = stele("table", topic, "--key", "a", *arguments, url=url)
        assert done.returncode == 2
        assert b"--key" in done.stderr


def test_a_followed_table_prints_its_changes(url: str, topic: str) -> None:
    with Client(url) as client:
        client.create_topic(topic, configs={"cleanup.policy": "compact"})
        client.produce(topic, b"1", key="a")
        process = subprocess.Popen(
            [sys.executable, "-m", "stele.cli", "table", topic, "-f", "--url", url],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"a\t1\n"
        client.produce(topic, b"2", key="b")
        assert process.stdout.readline() == b"b\t2\n"
        client.produce(topic, None, key="a")
        assert process.stdout.readline() == b"a\tnull\n"
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate()
    assert (process.returncode, rest, errors.strip()) == (130, b"", b"")


def test_topics_are_administered(url: str, topic: str) -> None:
    created = out("topics", "create", topic, "--partitions", "2", "--config", "retention.ms=60000", url=url)
    assert created == f"topic {topic} created with 2 partitions\n"
    assert out("topics", "create", topic, "--if-not-exists", url=url) == f"topic {topic} has 2 partitions\n"
    done = stele("topics", "create", topic, url=url)
    assert done.returncode == 1
    assert b"exists" in done.stderr
    assert "Traceback" not in done.stderr.decode()
    assert topic in out("topics", "list", url=url)
    altered = out("topics", "alter", topic, "--partitions", "3", "--reset", "retention.ms", url=url)
    assert altered.startswith(f"{topic}: 3 partitions")
    out("produce", topic, "--partition", "2", url=url, stdin=b"x\n")
    assert "partition 2: first offset 0, next offset 1" in out("topics", "describe", topic, url=url)
    assert stele("topics", "alter", topic, url=url).returncode == 2
    unasked = stele("topics", "delete", topic, url=url)
    assert (unasked.returncode, b"nobody to answer; pass --yes" in unasked.stderr) == (2, True)
    assert out("topics", "delete", topic, "--yes", url=url) == f"deleted topic {topic}\n"
    assert stele("topics", "describe", topic, url=url).returncode == 1


def test_describe_shows_compaction_over_http(url: str, topic: str) -> None:
    out("topics", "create", topic, "--config", "cleanup.policy=compact", "--partitions", "2", url=url)
    out("produce", topic, "--partition", "0", "--key-separator", ":", url=url, stdin=b"a:1\n")
    lines = out("topics", "describe", topic, url=url).splitlines()
    if url.startswith("http:"):
        assert lines[-2:] == [
            "  partition 0: first offset 0, next offset 1, dirty ratio 0.00, compaction idle",
            "  partition 1: first offset 0, next offset 0, dirty ratio 0.00, compaction idle",
        ]
    else:
        assert lines[-2:] == [
            "  partition 1: first offset 0, next offset 0",
            "  for its compaction, describe it over HTTP: --url http://HOST:PORT",
        ]


def test_follow_prints_what_comes_and_ends_quietly_on_ctrl_c(url: str, topic: str) -> None:
    with Client(url) as client:
        client.produce(topic, b"first")
        process = WarmProcess(
            ["consume", topic, "-f", "--url", url], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"first\n"
        client.produce(topic, b"second")
        assert process.stdout.readline() == b"second\n"
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate()
    assert (process.returncode, rest, errors.strip()) == (130, b"", b"")


def test_a_reader_that_has_seen_enough_is_no_error(url: str, topic: str) -> None:
    with Client(url) as client:
        client.produce_many(topic, [b"x" * 1000] * 2000)
    command = (
        f"{sys.executable} -m stele.cli consume {topic} --url {url} | head -n 1; exit ${{PIPESTATUS[0]}}"
    )
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_without_a_broker_the_error_names_a_remedy() -> None:
    for command in (["topics", "list"], ["consume", "t"]):
        done = stele(*command, "--url", "stele://127.0.0.1:1")
        assert done.returncode == 1
        assert done.stderr.startswith(b"Error: no broker answers at 127.0.0.1:1")
    done = stele("topics", "list", "--url", "kafka://x")
    assert done.returncode == 2
    assert b"write stele://HOST:9009" in done.stderr


def test_help_names_every_command() -> None:
    text = out("--help")
    assert all(name in text for name in ("serve", "topics", "produce", "consume", "dump", "verify"))
    assert "--follow" in out("consume", "--help")
    assert out("--version").startswith("stele, version ")
    assert stele("no-such-command").returncode == 2


def test_dump_and_verify_read_what_a_broker_wrote(tmp_path: Path) -> None:
    with run_broker(tmp_path / "data") as broker, Client(broker.binary_url) as client:
        client.produce_many("t", [b"dumped value", b"another"])
    (segment,) = (tmp_path / "data").glob("**/t-0/*.log")
    assert "dumped value" in out("dump", str(segment))
    assert out("dump", "--hex", str(segment))
    assert stele("verify", str(tmp_path / "data")).returncode == 0
    damaged = bytearray(segment.read_bytes())
    damaged[70] ^= 1
    segment.write_bytes(damaged)
    assert stele("verify", str(tmp_path / "data")).returncode == 1
    done = stele("dump", str(tmp_path / "data" / "metadata.sqlite"))
    assert done.returncode == 1
    assert b"not a file of a segment" in done.stderr


def test_serve_refuses_what_makes_no_sense(tmp_path: Path) -> None:
    done = stele("serve", "--data-dir", str(tmp_path / "d"), "--set", "no-equals")
    assert done.returncode == 2
    done = stele("serve", "--data-dir", str(tmp_path / "d"), "--http-port", "99999")
    assert done.returncode == 2
    assert b"http_port" in done.stderr


@pytest.mark.parametrize(
    "command", ["--help", "topics list", "topics list --format json", "consume {topic} --from earliest"]
)
def test_an_output_that_cannot_be_written_is_reported(url: str, topic: str, command: str) -> None:
    with Client(url) as client:
        client.produce(topic, b"a")
    full = subprocess.run(
        f"{sys.executable} -m stele.cli {command.format(topic=topic)} > /dev/full",
        shell=True,
        capture_output=True,
        check=False,
        env={**os.environ, "STELE_URL": url},
    )
    assert full.returncode == 1
    assert full.stderr.decode() == "Error: the output cannot be written: No space left on device\n"
