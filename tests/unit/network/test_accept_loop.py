"""What happens to a connection before its protocol begins: limits, handshakes, and clients that speak the wrong one."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from app.network.accept_loop import AcceptLoop, AcceptOptions
from app.network.admission import Admission
from tests.support.certificates import Authority
from tests.support.toy_listener import Limits, Listener, SteeredClock

Make = Callable[..., Awaitable[Listener]]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
async def make_listener(authority: Authority) -> AsyncIterator[Make]:
    listeners: list[Listener] = []

    async def make(*, tls: bool = True, connections_max: int = 100, **options: Any) -> Listener:
        listener = Listener(
            limits=Limits(),
            connections_max=connections_max,
            authority=authority if tls else None,
            accept=AcceptOptions(**options),
        )
        await listener.start()
        listeners.append(listener)
        return listener

    yield make
    for listener in listeners:
        await listener.close()


def failures(listener: Listener) -> dict[str, int]:
    return {reason: n for reason, n in listener.server.traffic().handshakes_failed.items() if n}


async def turns_until(is_so: Callable[[], bool]) -> None:
    """Turn the loop until the broker's side has done its work."""
    async with asyncio.timeout(60):
        while not is_so():  # noqa: ASYNC110 - nothing tells when a handshake has failed
            await asyncio.sleep(0)


# ── handshakes ──


async def test_a_peer_that_does_not_finish_its_handshake_in_time_is_dropped(make_listener: Make) -> None:
    clock = SteeredClock(asyncio.get_running_loop())
    listener = await make_listener(handshake_timeout_ms=10_000)
    silent, half = await listener.connect_plaintext(), await listener.connect_plaintext()
    await half.send_bytes(bytes.fromhex("160301020001"))
    await turns_until(lambda: listener.server.traffic().handshakes_pending == 2)
    await clock.advance_until(lambda: failures(listener) == {"timeout": 2}, step_s=1.0)
    for client in (silent, half):
        assert await client.rest() == b""
    assert listener.works.connections == []


async def test_connections_in_their_handshake_count_for_the_limit(make_listener: Make) -> None:
    listener = await make_listener(connections_max=2)
    silent = [await listener.connect_plaintext() for _ in range(2)]
    await turns_until(lambda: listener.server.traffic().handshakes_pending == 2)
    third = await listener.connect_plaintext()
    assert await third.rest() == b""
    assert listener.server.traffic().connections_refused == 1
    await silent[0].close()
    await turns_until(lambda: listener.server.traffic().handshakes_pending == 1)
    client = await listener.connect()
    await client.send("now a")
    assert await client.answer() == "a"


async def test_a_plaintext_client_of_a_listener_with_tls_gets_the_reason(
    make_listener: Make, caplog: pytest.LogCaptureFixture
) -> None:
    listener = await make_listener(plaintext_answer=b"this listener speaks TLS\n")
    client = await listener.connect_plaintext()
    with caplog.at_level(logging.WARNING):
        await client.send("now a")
        assert await client.rest() == b"this listener speaks TLS\n"
    assert failures(listener) == {"plaintext": 1}
    assert "toy: no TLS with 127.0.0.1: it does not speak TLS" in caplog.messages


async def test_a_tls_client_of_a_plaintext_listener_gets_an_alert(
    make_listener: Make, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    listener = await make_listener(tls=False)
    client = await listener.connect_plaintext()
    with pytest.raises(ssl.SSLError, match="HANDSHAKE_FAILURE"):
        await listener.add_tls(client, authority.client_context())
    assert any("it speaks TLS, and this listener has none" in message for message in caplog.messages)


async def test_a_client_that_trusts_another_ca_is_counted(
    make_listener: Make, tmp_path_factory: pytest.TempPathFactory
) -> None:
    listener = await make_listener()
    other = Authority(tmp_path_factory.mktemp("other"))
    client = await listener.connect_plaintext()
    with pytest.raises(ssl.SSLCertVerificationError):
        await listener.add_tls(client, other.client_context())
    # Python's client closes without an alert.
    await client.close()
    await turns_until(lambda: failures(listener) == {"closed": 1})


async def test_a_certificate_of_another_ca_and_an_expired_one_are_refused(
    make_listener: Make, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> None:
    listener = await make_listener()
    other = Authority(tmp_path_factory.mktemp("other"))
    expired = authority.issue(
        "expired",
        "old@example.com",
        not_before=datetime(2020, 1, 1, tzinfo=UTC),
        not_after=datetime(2021, 1, 1, tzinfo=UTC),
    )
    for number, pair in enumerate((other.client("stranger"), expired), start=1):
        client = await listener.add_tls(await listener.connect_plaintext(), authority.client_context(pair))
        with pytest.raises(ssl.SSLError, match="ALERT"):
            await client.rest()
        await turns_until(lambda number=number: failures(listener) == {"certificate": number})
    assert listener.works.connections == []


async def test_a_connection_keeps_the_principal_of_its_certificate(
    make_listener: Make, authority: Authority
) -> None:
    listener = await make_listener()
    pair = authority.client("orders")
    named = await listener.add_tls(await listener.connect_plaintext(), authority.client_context(pair))
    await named.send("now a")
    await named.answer()
    (connection,) = listener.works.connections
    assert (str(connection.principal), connection.tls_version) == (
        "User:CN=orders,OU=Service,O=Example",
        "TLSv1.3",
    )
    await listener.connect()
    assert str(listener.works.connections[1].principal) == "User:ANONYMOUS"


async def test_bytes_that_cannot_be_decrypted_end_the_connection(make_listener: Make) -> None:
    listener = await make_listener()
    client = await listener.connect()
    client.writer.write(b"\x17\x03\x03\x00\x20" + b"x" * 32)
    await listener.works.until(lambda: listener.works.connections[0].is_lost)
    assert listener.works.taken == []


async def test_a_response_larger_than_all_buffers_arrives_whole(make_listener: Make) -> None:
    listener = await make_listener()
    client = await listener.connect()
    await client.send("big 9000000", "now a")
    assert (len(await client.answer()), await client.answer()) == (8_999_999, "a")


async def test_tls_1_2_is_accepted_and_older_versions_are_not(
    make_listener: Make, authority: Authority
) -> None:
    listener = await make_listener()
    context = authority.client_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    client = await listener.add_tls(await listener.connect_plaintext(), context)
    await client.send("now a")
    assert await client.answer() == "a"
    assert listener.works.connections[0].tls_version == "TLSv1.2"
    # A hello that offers TLS 1.1 at most; OpenSSL itself refuses to write one.
    body = b"\x03\x02" + bytes(32) + b"\x00\x00\x02\x00\x2f\x01\x00"
    hello = b"\x01" + len(body).to_bytes(3, "big") + body
    old = await listener.connect_plaintext()
    await old.send_bytes(b"\x16\x03\x01" + len(hello).to_bytes(2, "big") + hello)
    assert (await old.rest()).endswith(bytes.fromhex("00020246")), "the alert protocol_version"
    assert failures(listener) == {"protocol": 1}


async def test_stopping_drops_connections_in_their_handshake(make_listener: Make) -> None:
    listener = await make_listener()
    silent = await listener.connect_plaintext()
    await turns_until(lambda: listener.server.traffic().handshakes_pending == 1)
    await listener.server.stop(1000)
    assert await silent.rest() == b""
    assert listener.server.traffic().handshakes_pending == 0


# ── rate, and open files ──


async def test_connections_over_the_rate_wait_in_the_backlog(make_listener: Make) -> None:
    clock = SteeredClock(asyncio.get_running_loop())
    listener = await make_listener(tls=False, rate_max=2.0)
    clients = [await listener.connect() for _ in range(4)]
    for number, client in enumerate(clients):
        client.send_soon(f"now {number}")
    assert [await client.answer() for client in clients[:2]] == ["0", "1"]
    assert listener.server.connections == 2
    await clock.advance_until(lambda: listener.server.connections == 4, step_s=0.25)
    assert [await client.answer() for client in clients[2:]] == ["2", "3"]


class ScarceSocket(socket.socket):
    """A listening socket of a process that has no file left for a while."""

    failures_left = 3
    calls = 0

    def accept(self) -> tuple[socket.socket, Any]:
        self.calls += 1
        if self.failures_left:
            self.failures_left -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


async def test_without_files_it_tries_again_every_second_and_loses_no_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = SteeredClock(asyncio.get_running_loop())
    made: list[asyncio.Protocol] = []

    def make(host: str, refusal: str | None) -> asyncio.Protocol:
        assert (host, refusal) == ("127.0.0.1", None)
        made.append(asyncio.Protocol())
        return made[-1]

    listening = ScarceSocket()
    listening.bind(("127.0.0.1", 0))
    accept = AcceptLoop(
        "toy",
        make,
        admission=Admission("toy", connections_max=10, open_files_max=1 << 20),
        options=AcceptOptions(),
    )
    accept.start(listening)
    _, writer = await asyncio.open_connection(*listening.getsockname())
    await turns_until(lambda: accept.accept_failures == 1)
    for _ in range(100):
        await asyncio.sleep(0)
    assert listening.calls == 1, "it does not spin"
    await clock.advance_until(lambda: bool(made), step_s=0.5)
    assert accept.accept_failures == 3
    assert (
        "toy: cannot accept connections: Too many open files; it tries again every second" in caplog.messages
    )
    accept.close()
    writer.close()
    await writer.wait_closed()


# ── the rate of an address ──


@pytest.mark.parametrize("tls", [True, False])
async def test_a_connection_over_the_rate_of_its_address_is_closed_after_the_delay(
    make_listener: Make, tls: bool
) -> None:
    clock = SteeredClock(asyncio.get_running_loop())
    asked: list[tuple[str, str]] = []

    def delay_ms(name: str, host: str) -> int:
        asked.append((name, host))
        return 0 if len(asked) == 1 else 3_600_000

    listener = await make_listener(tls=tls, address_delay_ms=delay_ms)
    admitted = await listener.connect()
    await admitted.send("now a")
    assert await admitted.answer() == "a"
    refused = await listener.connect_plaintext()
    await turns_until(lambda: len(asked) == 2)
    assert asked == [("toy", "127.0.0.1")] * 2
    assert listener.server.traffic().connections == 1
    clock.advance(3_601)
    assert await refused.rest() == b""


async def test_connections_that_are_held_end_with_the_listener(make_listener: Make) -> None:
    asked: list[str] = []

    def delay_ms(_name: str, host: str) -> int:
        asked.append(host)
        return 3_600_000

    listener = await make_listener(tls=False, address_delay_ms=delay_ms)
    refused = await listener.connect_plaintext()
    await turns_until(lambda: len(asked) == 1)
    await listener.server.stop(0)
    assert await refused.rest() == b""
