"""Tell a TLS handshake from plaintext by its first bytes (RFC 8446, section 5.1)."""

from __future__ import annotations

_HANDSHAKE, _MAJOR_VERSION, _MINOR_VERSION_MAX = 0x16, 3, 4

# The alert "handshake_failure" as a record: what a TLS client at a plaintext port can understand.
HANDSHAKE_FAILURE_ALERT = bytes((0x15, _MAJOR_VERSION, 1, 0, 2, 2, 40))


def begins_tls(data: bytes) -> bool:
    """Return True if ``data``, a connection's first bytes, may begin a TLS handshake."""
    return data[:1] == bytes((_HANDSHAKE,))


def is_tls_hello(data: bytes) -> bool:
    """Return True if ``data`` begins a TLS record; no protocol of the broker begins like one."""
    return len(data) > 2 and begins_tls(data) and data[1] == _MAJOR_VERSION and data[2] <= _MINOR_VERSION_MAX
