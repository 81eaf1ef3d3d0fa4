"""How programs log in: the properties of their clients, and what a test sees of their logins and connections."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.documents import ROOT
from tests.support.locked_broker import OAUTHBEARER, PASSWORD, SCRAM_512, LockedBroker
from tests.support.waiting import eventually

# Enough for a login on a busy machine between the time at which a client begins one and the end of its session.
SESSION_MS = 10_000
LOGINS = 2
WRONG_PASSWORD = "another-password-than-hers"
AUTHENTICATION_FAILED = "org.apache.kafka.common.errors.SaslAuthenticationException: Authentication failed"


def work(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test of a program that logs in again while it works, while the broker gets another certificate."""
    mechanisms = [
        pytest.param(SCRAM_512, marks=pytest.mark.capability("SCRAM")),
        pytest.param(OAUTHBEARER, marks=pytest.mark.capability("OAUTHBEARER")),
    ]
    for name in ("re-authentication", "certificate renewal"):
        test = pytest.mark.capability(name)(test)
    return pytest.mark.parametrize("mechanism", mechanisms)(test)


def _block_after(words: str, changes: dict[str, str]) -> str:
    """The code block of docs/security.md that follows these words, with the names and places of the test."""
    page = (ROOT / "docs/security.md").read_text()
    text = page.partition(words)[2].partition("```\n")[2].partition("```")[0]
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


def properties(user: str, password: str, ca_file: Path) -> str:
    """``client.properties`` of docs/security.md."""
    changes = {
        "/etc/stele/server.pem": str(ca_file),
        '"alice"': f'"{user}"',
        '"a-long-generated-password"': f'"{password}"',
    }
    return _block_after("`client.properties` of the Java client:", changes)


def _parsed(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines())


class Login:
    """The properties with which the clients of a program log in, and what its JVM needs for them."""

    def __init__(
        self, locked: LockedBroker, user: str, mechanism: str = SCRAM_512, *, password: str = PASSWORD
    ) -> None:
        self.properties = _parsed(properties(user, password, locked.ca_file))
        self.environment = dict[str, str]()
        if mechanism == OAUTHBEARER:
            url = locked.token_file(user).as_uri()
            text = _block_after(
                "With [tokens](#tokens), the last two lines", {"file:///etc/stele/token": url}
            )
            self.properties |= _parsed(text)
            # The client reads tokens from places that are allowed only.
            option = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={url}"
            self.environment["JAVA_TOOL_OPTIONS"] = option


def await_logins(locked: LockedBroker, user: str) -> None:
    """Return when a connection has logged in several times."""
    eventually(
        lambda: max(locked.logins(user).values(), default=0) >= LOGINS, "the program has logged in again"
    )


class Renewal:
    """A renewal of the certificate while a program has connections: they stay, and new ones succeed."""

    def __init__(self, locked: LockedBroker, user: str) -> None:
        self._locked, self._user = locked, user
        self.before = locked.connections(user)
        assert self.before
        locked.renew_certificate()

    def check_open_connections(self) -> None:
        assert self.before <= self._locked.connections(self._user), "open connections stay"

    def check_new_connections(self) -> None:
        assert self._locked.connections(self._user) - self.before, "no connection is new"


def denied(locked: LockedBroker, user: str) -> list[str]:
    """What the broker has refused to ``user``, by its audit log."""
    lines = [json.loads(line) for line in locked.audit_log.read_text().splitlines()]
    return [
        f"{line['operation']} {line['resource']}"
        for line in lines
        if line["verdict"] == "denied" and line["principal"] == f"User:{user}"
    ]
