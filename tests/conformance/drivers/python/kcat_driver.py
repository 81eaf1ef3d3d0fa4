"""The driver of kcat: every command is a run of the program. ``python kcat_driver.py BOOTSTRAP``.

kcat does not tell the offsets of what it wrote (they are answered as -1), takes
no timestamps and no header that is null, and commits by itself only.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
import threading
import time
from typing import IO, Any, cast

from driver_protocol import (
    HEARTBEAT_INTERVAL_MS,
    POLL_DEFAULT_MS,
    SESSION_TIMEOUT_DEFAULT_MS,
    Command,
    Deadline,
    Header,
    Login,
    PythonDriver,
    RecordJson,
    Refused,
    deadline_of,
    from_b64,
    headers_of,
    librdkafka_limits,
    main,
    record_json,
)

# Between what is sent in one run: kcat splits its input at them, so no test may write them.
_BETWEEN_RECORDS, _AFTER_KEY = "\x1e\x1eR", "\x1e\x1eK"
# Lengths first, so that keys and values may hold anything.
_FORMAT = "%t %p %o %T %K %S\\n%h\\n%k%s"
_REBALANCED = re.compile(r"% Group .* rebalanced \(memberid .*?\): (assigned|revoked):(.*)")
_PLACE = re.compile(r"(\S+) \[(\d+)\]")
# Since when librdkafka logs in again before its session ends; kcat ends when its connections are closed.
_LOGS_IN_AGAIN = (2, 2, 0)
# Before, it sends its nonce of SCRAM twice, which RFC 5802 has the server refuse.
_SENDS_ITS_NONCE_ONCE = (2, 6, 1)
_LEAVE_TIMEOUT_S = 20
_LOOK_S = 0.05


def _version() -> str:
    told = subprocess.run(["kcat", "-V"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"Version (\S+) .*librdkafka (\S+)", told)
    return f"{found[1]} (librdkafka {found[2]})" if found else "unknown"


def _librdkafka(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version.partition("librdkafka")[2]))


def _headers(line: bytes) -> list[Header]:
    headers: list[Header] = []
    for header in line.split(b",") if line else ():
        name, _, content = header.partition(b"=")
        headers.append((name.decode(), content))
    return headers


def _read_record(stream: IO[bytes], *, with_topic: bool = False) -> RecordJson | None:
    """The next record of kcat's output; None at its end."""
    line = stream.readline()
    if not line:
        return None
    topic, partition, offset, timestamp, key_bytes, value_bytes = line.split()
    headers = _headers(stream.readline().removesuffix(b"\n"))
    key = stream.read(int(key_bytes)) if int(key_bytes) >= 0 else None
    value = stream.read(int(value_bytes)) if int(value_bytes) >= 0 else None
    return record_json(
        topic=topic.decode() if with_topic else None,
        partition=int(partition),
        offset=int(offset),
        timestamp=int(timestamp),
        key=key,
        value=value,
        headers=headers,
    )


class _Member:
    """A ``kcat -G`` that runs on its own; two threads read what it says."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.met: list[RecordJson] = []
        self.assignment: list[tuple[str, int]] = []
        self.was_assigned = threading.Event()
        self.said: list[str] = []
        for read in (self._read_records, self._read_messages):
            threading.Thread(target=read, daemon=True).start()

    def _read_records(self) -> None:
        while record := _read_record(cast("IO[bytes]", self.process.stdout), with_topic=True):
            self.met.append(record)

    def _read_messages(self) -> None:
        for line in cast("IO[bytes]", self.process.stderr):
            text = line.decode(errors="replace")
            self.said.append(text)
            if found := _REBALANCED.match(text):
                places = [(topic, int(number)) for topic, number in _PLACE.findall(found[2])]
                if found[1] == "assigned":
                    self.assignment = places
                    self.was_assigned.set()
                else:
                    self.assignment = []

    def check(self) -> None:
        if self.process.poll() is not None:
            raise Refused("KCAT", f"kcat ended with {self.process.returncode}: {''.join(self.said)}")


class KcatDriver(PythonDriver):
    client = "kcat"
    unsupported = (
        "broker-side assignment",
        "share groups",
        "transactions",
        "setting timestamps",
        "no timestamp",
        "null header values",
        "group",
        "commit metadata",
        "create",
        "describe",
        "alter",
        "add partitions",
        "delete",
        "delete records",
        "groups admin",
        "OAUTHBEARER",
    )

    def __init__(self, bootstrap: str, login: Login | None = None) -> None:
        super().__init__(bootstrap, login)
        properties = {} if login is None else login.librdkafka
        self._program = [
            "kcat",
            "-b",
            bootstrap,
            *(f"-X{name}={value}" for name, value in properties.items()),
        ]
        self.version = _version()
        if _librdkafka(self.version) < _SENDS_ITS_NONCE_ONCE:
            self.unsupported = (*self.unsupported, "SCRAM")
        if _librdkafka(self.version) < _LOGS_IN_AGAIN:
            self.unsupported = (*self.unsupported, "re-authentication")
        self._members: dict[str, _Member] = {}

    def close(self) -> None:
        for name in list(self._members):
            self.op_leave({"member": name})

    def _kcat(self, command: Command, *arguments: str, given: bytes | None = None) -> bytes:
        try:
            done = subprocess.run(
                [*self._program, *arguments],
                # An input of its own: the driver's holds the next commands.
                input=given or b"",
                capture_output=True,
                timeout=deadline_of(command).left_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Refused("TIMEOUT", f"kcat {' '.join(arguments)} did not end") from None
        if done.returncode:
            raise Refused("KCAT", done.stderr.decode(errors="replace"))
        return done.stdout

    # ── records ──

    def op_produce(self, command: Command) -> Any:
        topic = ["-P", "-t", command["topic"], "-z", command["codec"], "-X", f"acks={command['acks']}"]
        if command["idempotent"]:
            topic += ["-X", "enable.idempotence=true"]
        # One run takes records that differ in key and value only; order counts inside a partition.
        runs: list[tuple[list[str], list[bytes]]] = []
        for record in sorted(command["records"], key=lambda record: record["partition"]):
            key, value = from_b64(record["key"]), from_b64(record["value"])
            options = ["-p", str(record["partition"]), "-D", _BETWEEN_RECORDS]
            for name, content in headers_of(record):
                if content is None:
                    raise Refused("UNSUPPORTED", "kcat writes no header that is null")
                options += ["-H", f"{name}={content.decode(errors='surrogateescape')}"]
            if key is not None:
                options += ["-K", _AFTER_KEY]
            if value is None:
                options += ["-Z"]
            text = (b"" if key is None else key + _AFTER_KEY.encode()) + (value or b"")
            if not runs or runs[-1][0] != options:
                runs.append((options, []))
            runs[-1][1].append(text + _BETWEEN_RECORDS.encode())
        for options, texts in runs:
            self._kcat(command, *topic, *options, given=b"".join(texts))
        return {"offsets": [-1] * len(command["records"])}

    def op_produce_keyed(self, command: Command) -> Any:
        keys = [cast("bytes", from_b64(key)) for key in command["keys"]]
        split = ["-D", _BETWEEN_RECORDS, "-K", _AFTER_KEY]
        lines = [key + _AFTER_KEY.encode() + key + _BETWEEN_RECORDS.encode() for key in keys]
        self._kcat(command, "-P", "-t", command["topic"], *split, given=b"".join(lines))
        # kcat does not say where it put them, so it is asked to read them.
        told = self._kcat(
            command, "-C", "-t", command["topic"], "-o", "beginning", "-e", "-q", "-f", "%p %k\\n"
        )
        found = dict(line.split(b" ", 1)[::-1] for line in told.splitlines())
        return {"partitions": [int(found[key]) for key in keys]}

    def op_fetch(self, command: Command) -> Any:
        with tempfile.TemporaryFile() as said:
            return self._fetch(command, said)

    def _fetch(self, command: Command, said: IO[bytes]) -> Any:
        offset = {"earliest": "beginning", "latest": "end"}.get(command["offset"], str(command["offset"]))
        place = ["-C", "-t", command["topic"], "-o", offset]
        # kcat reads one partition, or all of a topic.
        if "partition" in command:
            place += ["-p", str(command["partition"])]
        limits = [f"-X{name}={limit}" for name, limit in librdkafka_limits(command).items()]
        process = subprocess.Popen(
            [
                *self._program,
                *place,
                *limits,
                "-c",
                str(command["count"]),
                "-q",
                "-u",
                "-f",
                _FORMAT,
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=said,
        )
        watch = threading.Timer(deadline_of(command).left_s, process.kill)
        watch.start()
        records: list[RecordJson] = []
        with process:
            while record := _read_record(cast("IO[bytes]", process.stdout)):
                records.append(record)
        watch.cancel()
        said.seek(0)
        if process.returncode > 0:
            raise Refused("KCAT", said.read().decode(errors="replace"))
        if process.returncode or len(records) < command["count"]:
            raise Refused("TIMEOUT", f"{len(records)} records came; kcat ended with {process.returncode}")
        return {"records": records}

    def op_offsets(self, command: Command) -> Any:
        at = {"earliest": -2, "latest": -1}.get(command["at"], command["at"])
        told = self._kcat(command, "-Q", "-t", f"{command['topic']}:{command['partition']}:{at}").decode()
        return {"offset": int(told.split()[-1])}

    # ── groups ──

    def op_join(self, command: Command) -> Any:
        settings = {
            "session.timeout.ms": command.get("session_timeout_ms", SESSION_TIMEOUT_DEFAULT_MS),
            "heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS,
            "auto.offset.reset": command.get("start", "earliest"),
            "enable.auto.commit": "false",
        }
        if "instance_id" in command:
            settings["group.instance.id"] = command["instance_id"]
        options = [word for name, value in settings.items() for word in ("-X", f"{name}={value}")]
        member = _Member(
            [*self._program, "-G", command["group"], "-u", "-f", _FORMAT, *options, *command["topics"]]
        )
        self._members[command["member"]] = member
        if not member.was_assigned.wait(deadline_of(command).left_s):
            raise Refused("TIMEOUT", f"no assignment came; kcat said: {''.join(member.said)}")
        return self._assignment(member)

    def _assignment(self, member: _Member) -> Any:
        member.check()
        return {"assignment": member.assignment}

    def op_assignment(self, command: Command) -> Any:
        # It polls all the time; this only paces the caller.
        time.sleep(command.get("poll_ms", POLL_DEFAULT_MS) / 1000)
        return self._assignment(self._members[command["member"]])

    def op_poll(self, command: Command) -> Any:
        member = self._members[command["member"]]
        deadline: Deadline = deadline_of(command)
        while len(member.met) < command["count"] and not deadline.is_over:
            member.check()
            time.sleep(_LOOK_S)
        records = member.met[: command["count"]]
        del member.met[: len(records)]
        return {"records": records}

    def op_leave(self, command: Command) -> Any:
        process = self._members.pop(command["member"]).process
        process.terminate()
        process.wait(_LEAVE_TIMEOUT_S)
        return {}

    # ── topics ──

    def op_list_topics(self, command: Command) -> Any:
        told = json.loads(self._kcat(command, "-L", "-J"))
        return {"topics": [topic["topic"] for topic in told["topics"]]}


if __name__ == "__main__":
    main(KcatDriver)
