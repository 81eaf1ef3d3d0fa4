"""Two brokers with shared storage that ask for a login, their administrator, and a user who begins without rights."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
from stele.broker_process import BrokerLogin
from stele.testing import BrokerProcess, run_broker
from stele.wire.kafka.security import SaslAuthenticateRequest, SaslHandshakeRequest

from load.postgres_server import PostgresServer
from tests.support.brokers import Brokers
from tests.support.kafka_peer import WITHOUT_RETENTION, KafkaPeer

ROOT = BrokerLogin(user="root", password="the-password-of-root")
ADA = BrokerLogin(user="ada", password="the-password-of-ada")


class SecuredBrokers(Brokers):
    """The brokers 1 and 2; each connection is logged in, and ended with the brokers."""

    def __init__(self, processes: dict[int, BrokerProcess], stack: ExitStack) -> None:
        super().__init__(processes)
        self._stack = stack
        self._post(1, "/v1/users", {"name": ADA.user, "password": ADA.password})

    def peer(self, broker_id: int, login: BrokerLogin) -> KafkaPeer:
        token = f"\0{login.user}\0{login.password}".encode()
        while True:
            # A broker learns of a new user within 250 ms.
            peer = KafkaPeer(self[broker_id])
            assert peer.call(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
            if peer.call(SaslAuthenticateRequest(auth_bytes=token), 2).error_code == 0:
                return self._stack.enter_context(peer)
            peer.close()

    def allow(self, at: int, operation: str, kind: str, name: str) -> None:
        """Give ``ADA`` a right; the broker ``at`` knows of it at once."""
        rule = {
            "resource_type": kind,
            "resource_name": name,
            "pattern_type": "LITERAL",
            "principal": f"User:{ADA.user}",
            "operation": operation,
        }
        self._post(at, "/v1/acls", {"acls": [rule]})

    def _post(self, broker_id: int, path: str, document: object) -> None:
        answer = httpx.post(f"{self[broker_id].http_url}{path}", json=document, timeout=60)
        assert answer.status_code < 300, answer.text


@contextmanager
def run_secured_brokers(path: Path, server: PostgresServer) -> Generator[SecuredBrokers]:
    """Start both brokers with an empty database, and end them."""
    with ExitStack() as stack:

        def broker(number: int) -> BrokerProcess:
            environment = {
                "STELE_STORAGE": "shared",
                "STELE_POSTGRES_URL": server.dsn,
                "STELE_BROKER_ID": str(number),
                **WITHOUT_RETENTION,
            }
            # The second one finds the users in PostgreSQL.
            return stack.enter_context(
                run_broker(path / f"broker-{number}", environment=environment, login=ROOT)
            )

        yield SecuredBrokers({number: broker(number) for number in (1, 2)}, stack)
