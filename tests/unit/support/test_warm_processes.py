"""A forked process is one of its own: its streams, environment, directory, signals and exit code."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from stele.broker_process import run_broker

from tests.support.warm_processes import WarmProcess, run_stele

SERVE = ["serve", "--http-port", "0", "--binary-port", "0", "--kafka-port", "0", "--registry-port", "0"]


def serve(tmp_path: Path, *, env: dict[str, str] | None = None) -> WarmProcess:
    """A broker with its data in the directory ``data`` of its working directory."""
    pipe = subprocess.PIPE
    process = WarmProcess(
        SERVE,
        stdin=subprocess.DEVNULL,
        stdout=pipe,
        stderr=pipe,
        cwd=tmp_path,
        env={**os.environ, **(env or {})},
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith(b"stele ready ")
    return process


def test_streams_and_exit_code() -> None:
    version = run_stele("--version")
    assert (version.returncode, version.stdout[:15], version.stderr) == (0, b"stele, version ", b"")
    refused = run_stele("topics", "list", "--url", "kafka://x")
    assert (refused.returncode, refused.stdout) == (2, b"")
    assert b"write stele://HOST:9009" in refused.stderr
    unread = run_stele("topics", "list", "--url", "stele://127.0.0.1:1", stdin=b"x" * 1_000_000)
    assert unread.returncode == 1
    assert unread.stderr.startswith(b"Error: no broker answers at 127.0.0.1:1")


def test_environment_and_directory(tmp_path: Path) -> None:
    # Unlike this variable, one of this process does not reach it.
    with serve(tmp_path, env={"STELE_LOG_FORMAT": "json"}) as process:
        assert (tmp_path / "data").is_dir()
        process.terminate()
        assert process.wait(60) == 0
        assert process.stderr is not None
        assert b'"message":"shutting down"' in process.stderr.read().replace(b": ", b":")
    assert "STELE_LOG_FORMAT" not in os.environ


def test_several_at_once_have_pids_and_ends_of_their_own(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).mkdir()
    killed, stopped, interrupted = (serve(tmp_path / name) for name in "abc")
    with killed, stopped, interrupted:
        assert len({os.getpid(), killed.pid, stopped.pid, interrupted.pid}) == 4
        assert os.getpgid(killed.pid) == os.getpgid(0)
        with pytest.raises(subprocess.TimeoutExpired):
            killed.wait(0)
        killed.kill()
        assert killed.wait(60) == -signal.SIGKILL
        assert stopped.poll() is None
        os.kill(stopped.pid, signal.SIGTERM)
        interrupted.send_signal(signal.SIGINT)
        assert (stopped.wait(60), interrupted.wait(60)) == (0, 0)
        assert (killed.poll(), stopped.poll()) == (-signal.SIGKILL, 0)
        with pytest.raises(ProcessLookupError):
            os.kill(killed.pid, 0)


def test_it_has_no_files_of_others_open(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with (
        (tmp_path / "mine").open("w") as mine,
        serve(tmp_path / "other") as other,
        serve(tmp_path) as process,
    ):
        os.set_inheritable(mine.fileno(), True)
        open_files = {str(path.readlink()) for path in Path(f"/proc/{process.pid}/fd").iterdir()}
        assert any(name.startswith(str(tmp_path / "data")) for name in open_files)
        assert not any(name == mine.name or name.startswith(str(tmp_path / "other")) for name in open_files)
        for broker in (process, other):
            broker.kill()


def test_settings_of_the_interpreter_are_refused() -> None:
    with pytest.raises(AssertionError, match="PYTHONDEVMODE needs"):
        run_stele("--version", env={**os.environ, "PYTHONDEVMODE": "1"})


def command_line(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def test_brokers_of_tests_are_forked() -> None:
    with run_broker() as broker:
        assert b"tests.support.fork_server" in command_line(broker.pid)


@pytest.mark.long
@pytest.mark.cold_start
def test_brokers_of_tests_about_the_start_are_not() -> None:
    with run_broker() as broker:
        assert b"stele.cli\0serve\0" in command_line(broker.pid)
