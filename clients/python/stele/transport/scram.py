"""The client's half of SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677).

Pure, and slow: ``salt``.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

ScramMechanism = Literal["SCRAM-SHA-256", "SCRAM-SHA-512"]

_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
# RFC 7677 demands as many; a broker that asks for fewer wants the password to be guessed. More than
# the maximum would keep a client busy for minutes.
_ITERATIONS_MIN, _ITERATIONS_MAX = 4096, 1_000_000
_SERVER_FIRST = re.compile(r"r=([!-+\--~]+),s=([A-Za-z0-9+/=]+),i=([0-9]{1,7})(?:,.*)?")

# (hash, password, salt, iterations) → salted password
Salt = Callable[[str, str, bytes, int], bytes]


class ScramFailed(Exception):
    """The broker broke the rules of SCRAM, or does not know the password."""


def salt(hash_name: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Return the salted password; takes about 10 ms."""
    return hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)


@dataclass(slots=True)
class ScramClient:
    """One exchange. ``nonce`` is printable, without a comma, and never used twice."""

    mechanism: ScramMechanism
    user: str
    password: str
    nonce: str
    salt: Salt = salt
    _server_signature: bytes = b""

    def __repr__(self) -> str:
        return f"ScramClient({self.mechanism!r}, {self.user!r})"

    def first(self) -> bytes:
        return f"n,,{self._bare()}".encode()

    def final(self, challenge: bytes) -> bytes:
        """Return the proof. Raises ScramFailed."""
        try:
            text = challenge.decode("ascii")
            match = _SERVER_FIRST.fullmatch(text)
            if match is None:
                raise ScramFailed("its challenge is malformed")
            nonce, salted_with, iterations = (
                match[1],
                base64.b64decode(match[2], validate=True),
                int(match[3]),
            )
        except (UnicodeDecodeError, binascii.Error) as error:
            raise ScramFailed("its challenge is malformed") from error
        if not nonce.startswith(self.nonce) or len(nonce) == len(self.nonce):
            raise ScramFailed("its nonce does not continue that of the client")
        if not _ITERATIONS_MIN <= iterations <= _ITERATIONS_MAX:
            raise ScramFailed(
                f"it asks for {iterations} iterations; allowed are {_ITERATIONS_MIN} to {_ITERATIONS_MAX}"
            )
        hash_name = _HASHES[self.mechanism]
        salted = self.salt(hash_name, self.password, salted_with, iterations)
        without_proof = f"c=biws,r={nonce}"
        signed = f"{self._bare()},{text},{without_proof}".encode()
        client_key = hmac.digest(salted, b"Client Key", hash_name)
        signature = hmac.digest(hashlib.new(hash_name, client_key).digest(), signed, hash_name)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._server_signature = hmac.digest(hmac.digest(salted, b"Server Key", hash_name), signed, hash_name)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, final: bytes) -> None:
        """Check the broker's proof that it knows the password, too. Raises ScramFailed."""
        expected = b"v=" + base64.b64encode(self._server_signature)
        if not self._server_signature or not hmac.compare_digest(final.split(b",")[0], expected):
            raise ScramFailed(
                "it does not know the password, so it may not be the broker that it seems to be"
            )

    def _bare(self) -> str:
        return f"n={self.user.replace('=', '=3D').replace(',', '=2C')},r={self.nonce}"
