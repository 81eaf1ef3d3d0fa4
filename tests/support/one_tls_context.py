"""One TLS context for all clients of httpx that trust the usual authorities.

A client makes one of its own, and reading the certificates of all authorities takes 20 ms of CPU time. The tests
make thousands of clients, nearly all of them for addresses without TLS.
"""

from __future__ import annotations

import functools
import ssl
from typing import Any

from httpx._transports import default

_make = default.create_ssl_context  # pyright: ignore[reportPrivateImportUsage]
_usual = functools.cache(_make)


def _context(verify: Any = True, cert: Any = None, trust_env: bool = True) -> ssl.SSLContext:
    if verify is True and cert is None:
        return _usual(trust_env=trust_env)
    return _make(verify=verify, cert=cert, trust_env=trust_env)


default.create_ssl_context = _context  # pyright: ignore[reportPrivateImportUsage]
