"""Bind the sockets of listeners, with errors that say what to change."""

from __future__ import annotations

import socket

# Connections that wait to be accepted.
_BACKLOG = 1024
# Names of listeners as they are written.
_WRITTEN = {"http": "HTTP", "binary": "binary", "kafka": "Kafka"}


def bind(host: str, port: int, listener: str) -> socket.socket:
    """Return a bound socket, so that port 0 is known before anything is announced.

    Raises:
        OSError: with the listener, the address and the settings in its words.
    """
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, proto)
    except OSError as error:
        raise _refused(listener, host, port, error) from error
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise _refused(listener, host, port, error) from error
    return bound


def listen(bound: socket.socket, listener: str) -> None:
    """Have the system accept connections.

    With ``SO_REUSEADDR``, another process can bind the same port and be the first to listen.

    Raises:
        OSError: as ``bind``.
    """
    try:
        bound.listen(_BACKLOG)
    except OSError as error:
        host, port, *_ = bound.getsockname()
        raise _refused(listener, host, port, error) from error


def _refused(listener: str, host: str, port: int, error: OSError) -> OSError:
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return OSError(
        error.errno,
        f"the {_WRITTEN.get(listener, listener)} listener cannot listen on {where}: {error.strerror}; "
        f"choose another {listener}_port (--{listener}-port) or host (--host)",
    )
