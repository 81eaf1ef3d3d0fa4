"""Runs Kafka's command-line tools in one JVM that stays."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from load.apache_kafka import KafkaUnavailable, libs

CALL_TIMEOUT_S = 90.0
_HERE = Path(__file__).parent
_READ_BYTES = 1 << 16
_STDERR_SHOWN_BYTES = 4000
# Tools are brief: an optimizing compiler would only compete with them for the cores.
_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx256m", "-Duser.timezone=UTC")
# Where the runtime keeps the shutdown hooks of a tool.
_OPENED = ("--add-opens", "java.base/java.lang=ALL-UNNAMED")


@dataclass(frozen=True, slots=True)
class Output:
    """What one call left behind; ``code`` is None if it did not end in time."""

    code: int | None
    out: str
    err: str


def need_jdk() -> None:
    """Raises KafkaUnavailable where there is no JDK: the program of this shell is compiled as it starts."""
    if shutil.which("javac") is None:
        raise KafkaUnavailable("javac is not on the PATH: install a JDK, 17 or newer")
    libs()


class ToolShell:
    """One JVM, one call at a time; a call that does not end costs the JVM, and the next one gets another.

    Raises:
        KafkaUnavailable: there is no JDK, or the jars could not be had.
    """

    def __init__(self) -> None:
        need_jdk()
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the shell)
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = b""

    def run(self, class_name: str, arguments: Sequence[str], *, stdin: str = "") -> Output:
        process = self._process or self._start()
        command = {"class": class_name, "arguments": list(arguments), "input": stdin}
        stdin_pipe = cast("Any", process.stdin)
        stdin_pipe.write(json.dumps(command).encode() + b"\n")
        stdin_pipe.flush()
        line = self._read_line(process)
        if line is None:
            self._kill()
            return Output(None, "", f"did not end within {CALL_TIMEOUT_S:g} s")
        answer = json.loads(line)
        return Output(answer["code"], answer["out"], answer["err"])

    def close(self) -> None:
        self._kill()
        self._stderr.close()

    def _start(self) -> subprocess.Popen[bytes]:
        configuration = f"-Dlog4j2.configurationFile={_HERE / 'log4j2.properties'}"
        command = [
            "java",
            *_OPTIONS,
            *_OPENED,
            configuration,
            "-cp",
            f"{libs()}/*",
            str(_HERE / "ToolShell.java"),
        ]
        self._unread = b""
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr
        )
        return self._process

    def _read_line(self, process: subprocess.Popen[bytes]) -> bytes | None:
        deadline_s = time.monotonic() + CALL_TIMEOUT_S
        stdout = cast("Any", process.stdout)
        while b"\n" not in self._unread:
            readable, _, _ = select.select([stdout], [], [], max(0.0, deadline_s - time.monotonic()))
            if not readable:
                return None
            chunk = os.read(stdout.fileno(), _READ_BYTES)
            if not chunk:
                self._stderr.seek(max(0, self._stderr.seek(0, os.SEEK_END) - _STDERR_SHOWN_BYTES))
                raise RuntimeError(f"the JVM of the tools ended:\n{self._stderr.read().decode()}")
            self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            cast("Any", stream).close()
