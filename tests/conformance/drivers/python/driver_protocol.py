"""What the drivers in Python share: the loop over commands, RECORDs, waits and Kafka's names of errors.

The protocol itself is in ../../README.md. A driver is a class with one method per
op; an op that its client does not offer has no method and stands in ``unsupported``.
"""

from __future__ import annotations

import base64
import json
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NotRequired, TypedDict

TIMEOUT_DEFAULT_MS = 30_000
SESSION_TIMEOUT_DEFAULT_MS = 6000
# An eviction or a rebalance is noticed within this; the libraries' 3 s would make every test wait.
HEARTBEAT_INTERVAL_MS = 500
POLL_DEFAULT_MS = 500
_LIBRDKAFKA_MESSAGE_MIN_BYTES = 1000

Command = dict[str, Any]
Header = tuple[str, bytes | None]

# As the protocol guide spells them; those that the operations here can meet.
ERROR_NAMES = {
    -1: "UNKNOWN_SERVER_ERROR",
    1: "OFFSET_OUT_OF_RANGE",
    2: "CORRUPT_MESSAGE",
    3: "UNKNOWN_TOPIC_OR_PARTITION",
    5: "LEADER_NOT_AVAILABLE",
    6: "NOT_LEADER_OR_FOLLOWER",
    7: "REQUEST_TIMED_OUT",
    10: "MESSAGE_TOO_LARGE",
    12: "OFFSET_METADATA_TOO_LARGE",
    15: "COORDINATOR_NOT_AVAILABLE",
    16: "NOT_COORDINATOR",
    17: "INVALID_TOPIC_EXCEPTION",
    22: "ILLEGAL_GENERATION",
    25: "UNKNOWN_MEMBER_ID",
    26: "INVALID_SESSION_TIMEOUT",
    27: "REBALANCE_IN_PROGRESS",
    29: "TOPIC_AUTHORIZATION_FAILED",
    30: "GROUP_AUTHORIZATION_FAILED",
    31: "CLUSTER_AUTHORIZATION_FAILED",
    32: "INVALID_TIMESTAMP",
    35: "UNSUPPORTED_VERSION",
    36: "TOPIC_ALREADY_EXISTS",
    37: "INVALID_PARTITIONS",
    38: "INVALID_REPLICATION_FACTOR",
    40: "INVALID_CONFIG",
    42: "INVALID_REQUEST",
    58: "SASL_AUTHENTICATION_FAILED",
    68: "NON_EMPTY_GROUP",
    69: "GROUP_ID_NOT_FOUND",
    82: "FENCED_INSTANCE_ID",
    87: "INVALID_RECORD",
}


class RecordJson(TypedDict):
    partition: int
    offset: int
    timestamp: int
    key: str | None
    value: str | None
    headers: list[list[str | None]]
    topic: NotRequired[str]


class Refused(Exception):
    """An answer with an error: Kafka's name of it, or the client's own word."""

    def __init__(self, error: str | int, message: str) -> None:
        super().__init__(message)
        self.error = ERROR_NAMES.get(error, str(error)) if isinstance(error, int) else error


class Deadline:
    """The end of a wait. Raises ``Refused`` when a caller needs more time than is left."""

    def __init__(self, timeout_ms: int) -> None:
        self._end_s = time.monotonic() + timeout_ms / 1000

    @property
    def left_s(self) -> float:
        return max(0.0, self._end_s - time.monotonic())

    @property
    def is_over(self) -> bool:
        return self.left_s == 0.0

    def check(self, waited_for: str) -> None:
        if self.is_over:
            raise Refused("TIMEOUT", f"waited too long for {waited_for}")


def deadline_of(command: Command) -> Deadline:
    return Deadline(int(command.get("timeout_ms", TIMEOUT_DEFAULT_MS)))


def partitions_of(command: Command) -> list[int]:
    """Those of ``partitions``, or the one of ``partition``."""
    return command.get("partitions") or [command["partition"]]


def limits_of(
    command: Command, *, all_bytes: str, partition_bytes: str, answer_bytes: str | None = None
) -> dict[str, Any]:
    """The limits of a fetch that the command has, by the names of a client library."""
    names = {"max_bytes": all_bytes, "partition_max_bytes": partition_bytes, "answer_max_bytes": answer_bytes}
    return {name: command[limit] for limit, name in names.items() if name and limit in command}


def librdkafka_limits(command: Command) -> dict[str, int]:
    """The limits of a fetch by librdkafka's names."""
    limits: dict[str, int] = {}
    if "max_bytes" in command:
        limits["fetch.max.bytes"] = command["max_bytes"]
        # It raises the limit of a fetch to that of a message, which is 1 MB unless told.
        limits["message.max.bytes"] = max(_LIBRDKAFKA_MESSAGE_MIN_BYTES, command["max_bytes"])
    if "partition_max_bytes" in command:
        limits["max.partition.fetch.bytes"] = command["partition_max_bytes"]
    if "answer_max_bytes" in command:
        limits["receive.message.max.bytes"] = command["answer_max_bytes"]
    return limits


def to_b64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def from_b64(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def headers_of(record: dict[str, Any]) -> list[Header]:
    return [(name, from_b64(content)) for name, content in record.get("headers", ())]


def record_json(
    *,
    partition: int,
    offset: int,
    timestamp: int,
    key: bytes | None,
    value: bytes | None,
    headers: list[Header],
    topic: str | None = None,
) -> RecordJson:
    record = RecordJson(
        partition=partition,
        offset=offset,
        timestamp=timestamp,
        key=to_b64(key),
        value=to_b64(value),
        headers=[[name, to_b64(content)] for name, content in headers],
    )
    if topic is not None:
        record["topic"] = topic
    return record


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """How the client logs in, over TLS; a token is read from its file whenever the client needs one."""

    ca_file: str
    mechanism: str
    user: str = ""
    password: str = ""
    token_file: str = ""

    def token(self) -> str:
        return Path(self.token_file).read_text().strip()

    @property
    def librdkafka(self) -> dict[str, str]:
        """The properties of librdkafka, except for the callback that fetches tokens."""
        properties = {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": self.ca_file,
            "sasl.mechanism": self.mechanism,
        }
        if not self.token_file:
            properties |= {"sasl.username": self.user, "sasl.password": self.password}
        return properties


def expiry_of(token: str) -> int:
    """The claim ``exp`` of a JWT, in seconds since 1970."""
    payload = token.split(".")[1]
    return int(json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))["exp"])


class PythonDriver:
    """The base of a driver: ``op_<name>`` methods take a command and return its result."""

    client: str
    version: str
    unsupported: tuple[str, ...] = ()

    def __init__(self, bootstrap: str, login: Login | None = None) -> None:
        self.bootstrap = bootstrap
        self.login = login

    def close(self) -> None:
        """Leaves what it joined."""

    def error_of(self, error: Exception) -> Refused:
        """The client's exception in the words of the protocol."""
        return Refused(type(error).__name__, str(error))

    def do(self, command: Command) -> Any:
        method = getattr(self, f"op_{command['op']}", None)
        if method is None:
            raise Refused("UNSUPPORTED", f"{self.client} has no {command['op']}")
        return method(command)

    def run(self) -> None:
        greeting = {"client": self.client, "version": self.version, "unsupported": self.unsupported}
        print(json.dumps(greeting), flush=True)
        try:
            for line in sys.stdin:
                print(json.dumps(self._answer(json.loads(line))), flush=True)
        finally:
            self.close()

    def _answer(self, command: Command) -> dict[str, Any]:
        try:
            return {"id": command["id"], "result": self.do(command)}
        except Refused as error:
            refused = error
        # A client library may raise anything, and every command has its answer.
        except Exception as error:  # noqa: BLE001
            traceback.print_exc()
            refused = self.error_of(error)
        return {"id": command["id"], "error": refused.error, "message": str(refused)}


def main(driver: type[PythonDriver]) -> None:
    bootstrap, *login_files = sys.argv[1:]
    logins = [Login(**json.loads(Path(file).read_text())) for file in login_files]
    driver(bootstrap, *logins).run()
