"""Ports that are chosen for servers of other projects."""

from __future__ import annotations

import socket
import sys

import pytest

from load.server_start import free_ports


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a port be held for a listener")
def test_only_a_server_that_reuses_addresses_gets_a_free_port() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == len(ports)
    for port in ports:
        with socket.socket() as other, pytest.raises(OSError, match="Address already in use"):
            other.bind(("127.0.0.1", port))
        for _start in range(2):
            # It sets SO_REUSEADDR.
            socket.create_server(("127.0.0.1", port)).close()
