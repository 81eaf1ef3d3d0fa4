"""Starting and stopping a broker, as an operator sees it."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from stele import Client
from stele.testing import run_broker
from stele.wire import messages as m
from stele.wire.framing import FrameReader
from stele.wire.kafka.metadata import MetadataRequest

from tests.support.kafka_peer import KafkaPeer
from tests.support.warm_processes import run_stele


def serve(*arguments: str) -> tuple[int, str]:
    """The exit code and stderr of a ``stele serve`` that is expected to refuse."""
    done = run_stele("serve", *arguments)
    return done.returncode, done.stderr.decode()


def test_a_misspelt_setting_starts_no_broker(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"

    code, said = serve("--data-dir", str(data_dir), "--set", "autorization=acls")

    assert code == 2
    assert "did you mean authorization?" in said
    assert not data_dir.exists()


def test_a_misspelt_variable_is_reported_by_the_broker_that_starts(tmp_path: Path) -> None:
    with run_broker(tmp_path / "data", environment={"STELE_AUTORIZATION": "acls"}) as broker:
        log = broker.data_dir.with_name(f"{broker.data_dir.name}.stderr").read_text()

    assert "did you mean STELE_AUTHORIZATION?" in log


def test_sigterm_answers_what_was_asked_and_leaves_a_clean_directory(tmp_path: Path) -> None:
    produces = 5_000
    with run_broker(tmp_path) as broker:
        with socket.create_connection((broker.host, broker.binary_port), timeout=30) as connection:
            connection.sendall(m.ProduceRequest(topic="t", data=b"x" * 100).encode() * produces)
            frames = FrameReader()
            answers = list(frames.feed(connection.recv(65536)))
            os.kill(broker.pid, signal.SIGTERM)
            while data := connection.recv(65536):
                answers += frames.feed(data)
        assert broker.stop() == 0
        assert (tmp_path / "clean-shutdown").exists()
        offsets = [m.decode_response(kind, body) for kind, body in answers]
        assert offsets == [m.ProduceResponse(offset=n) for n in range(len(offsets))]

        broker.start()
        with Client(broker.binary_url) as client:
            # What had arrived when the signal did is answered; what had not is not stored.
            assert client.list_offset("t") == len(offsets)


@pytest.mark.cold_start
@pytest.mark.every(2)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_idle_broker_ends_at_once_with_zero(number: signal.Signals) -> None:
    with run_broker() as broker:
        os.kill(broker.pid, number)
        assert broker.stop() == 0


def test_a_second_broker_on_the_same_directory_is_refused_and_the_first_continues(tmp_path: Path) -> None:
    with run_broker(tmp_path) as broker:
        code, said = serve(
            "--data-dir",
            str(tmp_path),
            "--http-port",
            "0",
            "--binary-port",
            "0",
            "--kafka-port",
            "0",
            "--registry-port",
            "0",
        )

        assert code == 1
        assert "in use by another broker" in said
        assert f"process {broker.pid}" in said
        assert "--data-dir" in said
        assert "Traceback" not in said
        with Client(broker.binary_url) as client:
            assert client.simple_produce("t", b"x") == 0


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, said = serve(
            "--data-dir",
            str(tmp_path),
            "--http-port",
            "0",
            "--binary-port",
            port,
            "--kafka-port",
            "0",
            "--registry-port",
            "0",
        )

    assert code == 1
    assert f"the binary listener cannot listen on 127.0.0.1:{port}" in said


def test_a_registry_that_nobody_asked_for_keeps_no_broker_from_starting(tmp_path: Path) -> None:
    ports = ("--http-port", "0", "--binary-port", "0", "--kafka-port", "0")
    with ExitStack() as stack:
        # If this fails, another process has it.
        with suppress(OSError):
            stack.enter_context(socket.create_server(("127.0.0.1", 8081)))
        command = [sys.executable, "-m", "stele.cli", "serve", "--data-dir", str(tmp_path), *ports]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as broker:
            assert broker.stdout is not None
            ready = broker.stdout.readline()
            broker.terminate()
            _, said = broker.communicate()
        code, refused = serve("--data-dir", str(tmp_path), *ports, "--set", "registry_enable=true")

    assert "stele ready" in ready
    assert "registry=" not in ready
    assert (
        "this broker serves no schema registry: the registry listener cannot listen on 127.0.0.1:8081" in said
    )
    assert code == 1
    assert "the registry listener cannot listen on 127.0.0.1:8081" in refused


# Another process has bound the port, too, and listens while the broker opens its logs.
_TAKEN_DURING_THE_START = """
import socket, sys
from app import main
other = socket.socket()
other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
other.bind(("127.0.0.1", 0))
open_broker = main.open_broker
async def take_then_open(*arguments):
    other.listen()
    return await open_broker(*arguments)
main.open_broker = take_then_open
ports = {"http_port": 0, "binary_port": 0, "kafka_port": 0, "registry_port": 0} | {sys.argv[1]: other.getsockname()[1]}
print(other.getsockname()[1], flush=True)
sys.exit(main.serve({"data_dir": sys.argv[2], **ports}))
"""


@pytest.mark.parametrize(
    "name",
    ["kafka", "registry", *(pytest.param(name, marks=pytest.mark.long) for name in ("http", "binary"))],
)
def test_a_port_that_is_taken_during_the_start_is_named(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _TAKEN_DURING_THE_START, f"{name}_port", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    port = done.stdout.split()[0]
    assert re.search(rf"the {name} listener cannot listen on 127.0.0.1:{port}: ", done.stderr, re.IGNORECASE)
    assert f"choose another {name}_port" in done.stderr
    assert "stele ready" not in done.stdout
    assert "Traceback" not in done.stderr
    with run_broker(tmp_path) as broker:
        assert "did not shut down cleanly" not in broker.stderr


_COLLECTIONS = """
import gc, os, signal, sys
from app import main
open_broker = main.open_broker
async def look_then_open(*arguments):
    print("opening", gc.isenabled(), flush=True)
    return await open_broker(*arguments)
def look_then_end(*_arguments, **_options):
    sys.stdout.write(f"ready {gc.isenabled()}")
    os.kill(os.getpid(), signal.SIGTERM)
main.open_broker, main.print = look_then_open, look_then_end
sys.exit(main.serve({"data_dir": sys.argv[1], "http_port": 0, "binary_port": 0, "kafka_port": 0, "registry_port": 0}))
"""


@pytest.mark.long
def test_garbage_is_collected_from_the_ready_line_on_and_not_before(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _COLLECTIONS, str(tmp_path)], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["opening", "False", "ready", "True"]


def test_a_setting_that_makes_no_sense_is_named() -> None:
    code, said = serve("--set", "num_partitions=0")

    assert code == 2
    assert "num_partitions" in said
    assert "Traceback" not in said


def test_clients_are_sent_to_the_advertised_port() -> None:
    port = 19092
    with (
        run_broker(environment={"STELE_ADVERTISED_KAFKA_PORT": str(port)}) as broker,
        KafkaPeer(broker) as peer,
    ):
        answer = peer.call(MetadataRequest(topics=None), 9)
        assert [(node.host, node.port) for node in answer.brokers] == [(broker.host, port)]


@pytest.mark.long
def test_an_address_that_others_can_reach_is_refused_or_warned_about_loudly(tmp_path: Path) -> None:
    with run_broker(tmp_path, arguments=["--set", "advertised_host=broker.example"]) as broker:
        assert "WITHOUT AUTHENTICATION" not in broker.stderr
    arguments = ["--data-dir", str(tmp_path / "open"), "--host", "0.0.0.0"]
    arguments += ["--http-port", "0", "--binary-port", "0", "--kafka-port", "0", "--registry-port", "0"]
    code, said = serve(*arguments)
    assert code == 2
    assert "STELE_AUTHENTICATION=required" in said
    assert "STELE_ALLOW_ANONYMOUS_NETWORK=true" in said
    command = [
        sys.executable,
        "-m",
        "stele.cli",
        "serve",
        *arguments,
        "--set",
        "allow_anonymous_network=true",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    ready = re.match(r"stele ready http=0\.0\.0\.0:(\d+)", process.stdout.readline())
    process.terminate()
    _, errors = process.communicate()
    assert "WITHOUT AUTHENTICATION OR ENCRYPTION" in errors
    assert ready is not None
    assert f"http://127.0.0.1:{ready[1]}/ is the console" in errors, (
        "with an address that this machine can open"
    )


def test_stele_verify_distinguishes_a_torn_tail_from_a_flipped_bit(tmp_path: Path) -> None:
    with run_broker(tmp_path) as broker:
        with Client(broker.binary_url) as client:
            for number in range(20):
                client.simple_produce("t", b"%d" % number * 50)
        broker.stop()
        log = tmp_path / "t-0" / f"{0:020d}.log"
        healthy = log.read_bytes()
        damaged = bytearray(healthy)
        damaged[len(healthy) // 2] ^= 1
        log.write_bytes(damaged)
        verified = run_stele("verify", str(tmp_path))
        assert verified.returncode == 1
        assert f"{log}: corrupt from byte" in verified.stdout.decode()

        broker.start()
        with Client(broker.binary_url) as client:
            assert client.simple_consume("t", 0, 5)[0][0] == (0, b"0" * 50)
            assert client.simple_consume("t", 19, 5)[0] == [(19, b"19" * 50)]
