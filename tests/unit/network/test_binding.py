"""A listener that cannot listen says which one it is, where, and which settings to change."""

from __future__ import annotations

import errno
import socket

import pytest

from app.network.binding import bind, listen


@pytest.mark.parametrize(
    ("listener", "written"), [("http", "HTTP"), ("binary", "binary"), ("kafka", "Kafka")]
)
def test_an_address_that_is_taken_is_named_with_the_settings(listener: str, written: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError) as refused:
            bind("127.0.0.1", port, listener)

    assert refused.value.errno == errno.EADDRINUSE
    assert f"the {written} listener cannot listen on 127.0.0.1:{port}" in str(refused.value)
    assert f"choose another {listener}_port (--{listener}-port) or host (--host)" in str(refused.value)


def test_a_port_on_which_another_process_listens_after_bind_is_named() -> None:
    with bind("127.0.0.1", 0, "kafka") as first:
        port = first.getsockname()[1]
        with bind("127.0.0.1", port, "kafka") as second:
            listen(first, "kafka")
            with pytest.raises(
                OSError, match=f"the Kafka listener cannot listen on 127.0.0.1:{port}: .*kafka_port"
            ):
                listen(second, "kafka")


def test_a_host_that_has_no_address_is_named() -> None:
    with pytest.raises(OSError, match=r"the HTTP listener cannot listen on host\.invalid:8080: .*--host"):
        bind("host.invalid", 8080, "http")


def test_an_address_of_version_6_is_written_in_brackets() -> None:
    with pytest.raises(OSError, match=r"cannot listen on \[2001:db8::1\]:8080"):
        bind("2001:db8::1", 8080, "http")
