"""SCRAM-SHA-256 and SCRAM-SHA-512 for a server: credentials, messages and proofs (RFC 5802, RFC 7677).

Names are compared as they were sent: like Apache Kafka, this applies no SASLprep.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

ScramMechanism = Literal["SCRAM-SHA-256", "SCRAM-SHA-512"]

# Clients refuse fewer; more would let one login keep a thread for long. Both are Apache Kafka's bounds.
ITERATIONS_MIN = 4096
ITERATIONS_MAX = 16_384
SALT_BYTES = 32
_SALT_BYTES_MAX = 1024
_NAME_CHARACTERS_MAX = 255
_DIGITS = b"0123456789abcdefghijklmnopqrstuvwxyz"
# A random number of 130 bits to the base of 36 has 25 or 26 digits, seldom fewer.
_JAVA_SALT_TEXT = re.compile(rb"[0-9a-z]{20,26}")
_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_NUMBERS: dict[int, ScramMechanism] = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}

# RFC 5802: printable ASCII except the comma.
_NONCE = re.compile(r"[\x21-\x2b\x2d-\x7e]{1,256}")
_ESCAPE = re.compile(r"=2C|=3D|=")
_NO_BINDING = "biws"  # base64 of "n,,": the client supports no channel binding


class MalformedScram(ValueError):
    """The client's message breaks RFC 5802, or asks for what is not supported."""


def mechanism_number(mechanism: ScramMechanism) -> int:
    """Return Kafka's number of the mechanism (KIP-554)."""
    return 1 if mechanism == "SCRAM-SHA-256" else 2


def mechanism_of_number(number: int) -> ScramMechanism | None:
    return _NUMBERS.get(number)


def _hash_bytes(mechanism: ScramMechanism) -> int:
    return hashlib.new(_HASHES[mechanism]).digest_size


# ── credentials ──


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramCredential:
    """The stored form of a password.

    Neither the password nor a login can be made of it.
    """

    mechanism: ScramMechanism
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential({self.mechanism}, iterations={self.iterations})"


def salt_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Return the SaltedPassword. Takes milliseconds: call it in a thread."""
    return hashlib.pbkdf2_hmac(_HASHES[mechanism], password.encode(), salt, iterations)


def credential_of(
    mechanism: ScramMechanism, salted_password: bytes, *, salt: bytes, iterations: int
) -> ScramCredential:
    """Return the credential of a SaltedPassword.

    Raises:
        ValueError: a value is out of its bounds.
    """
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise ValueError(
            f"{iterations} iterations; {mechanism} takes {ITERATIONS_MIN} to {ITERATIONS_MAX} of them"
        )
    if not 0 < len(salt) <= _SALT_BYTES_MAX:
        raise ValueError(f"the salt has {len(salt)} bytes; it must have 1 to {_SALT_BYTES_MAX}")
    if not salted_password:
        # Of any other length it is the key of a hash, as in Kafka; a client that logs in makes one of the right length.
        raise ValueError("the salted password is empty; derive it from the password")
    client_key = _hmac(mechanism, salted_password, b"Client Key")
    return ScramCredential(
        mechanism=mechanism,
        salt=salt,
        stored_key=hashlib.new(_HASHES[mechanism], client_key).digest(),
        server_key=_hmac(mechanism, salted_password, b"Server Key"),
        iterations=iterations,
    )


def credential_of_password(
    mechanism: ScramMechanism, password: str, *, salt: bytes, iterations: int = ITERATIONS_MAX
) -> ScramCredential:
    """``credential_of`` for a password. Takes milliseconds: call it in a thread."""
    salted = salt_password(mechanism, password, salt, iterations)
    return credential_of(mechanism, salted, salt=salt, iterations=iterations)


def is_password(credential: ScramCredential, password: str) -> bool:
    """Return whether ``password`` is the one of ``credential``.

    Takes milliseconds: call it in a thread.
    """
    mechanism = credential.mechanism
    salted = salt_password(mechanism, password, credential.salt, credential.iterations)
    return hmac.compare_digest(_hmac(mechanism, salted, b"Server Key"), credential.server_key)


class CredentialForm(NamedTuple):
    """The parameters of a credential that the first message of a login reveals, besides the salt.

    ``salt_bytes`` is ``JAVA_SALT`` for salts as the tools of Apache Kafka make them.
    """

    mechanism: ScramMechanism
    iterations: int
    salt_bytes: int


JAVA_SALT = 0


def form_of(credential: ScramCredential) -> CredentialForm:
    is_java = _JAVA_SALT_TEXT.fullmatch(credential.salt) is not None
    return CredentialForm(
        credential.mechanism, credential.iterations, JAVA_SALT if is_java else len(credential.salt)
    )


def unknown_user(
    mechanism: ScramMechanism, name: str, secret: bytes, *, forms: Mapping[CredentialForm, int] | None = None
) -> ScramCredential:
    """Return a credential that no password matches, for an unknown user.

    It has one of ``forms``, each as often as users have it, so that it cannot be told from theirs. Its salt is the
    same whenever the name is tried, as that of a real user is; ``secret`` keeps others from computing it. Where the
    form of a name changes with those of the users, so does the salt, as with a new password.
    """

    def drawn(form: CredentialForm) -> float:
        """Return the place of a form in the draw for this name; the least wins.

        This is weighted rendezvous hashing.
        """
        digest = hmac.digest(secret, f"form {form!r} {name}".encode(), "sha256")
        return -math.log((int.from_bytes(digest[:7]) + 1) / (1 << 56)) / known[form]

    known = forms or {CredentialForm(mechanism, ITERATIONS_MAX, SALT_BYTES): 1}
    form = min(sorted(known), key=drawn)

    def derived(what: str, size: int) -> bytes:
        key = hmac.digest(secret, f"{what} {form!r} {name}".encode(), "sha256")
        return hashlib.shake_256(key).digest(size)

    size = _hash_bytes(form.mechanism)
    return ScramCredential(
        mechanism=form.mechanism,
        salt=_java_salt(derived("salt", 17))
        if form.salt_bytes == JAVA_SALT
        else derived("salt", form.salt_bytes),
        stored_key=derived("stored key", size),
        server_key=derived("server key", size),
        iterations=form.iterations,
    )


def _java_salt(random: bytes) -> bytes:
    """Return 130 bits to the base of 36, as Kafka's clients and tools make salts."""
    number = int.from_bytes(random) >> 6
    digits = bytearray()
    while number:
        number, digit = divmod(number, 36)
        digits.append(_DIGITS[digit])
    return bytes(reversed(digits)) or b"0"


# ── messages ──


@dataclass(frozen=True, slots=True)
class ClientFirst:
    """``n,,n=user,r=nonce``. ``bare`` is the part that the proof covers."""

    name: str
    nonce: str
    authzid: str
    bare: str


def parse_client_first(data: bytes) -> ClientFirst:
    """Parse the first message of the client. Raises MalformedScram."""
    text = _text(data)
    flag, comma, rest = text.partition(",")
    if flag != "n" or not comma:
        # "y" and "p=…" belong to channel binding, which needs SCRAM-…-PLUS.
        raise MalformedScram("the client asks for channel binding, which is not supported")
    authzid_field, comma, bare = rest.partition(",")
    if not comma or (authzid_field and not authzid_field.startswith("a=")):
        raise MalformedScram("the GS2 header is malformed")
    fields = bare.split(",")
    if len(fields) < 2 or not fields[0].startswith("n=") or not fields[1].startswith("r="):
        raise MalformedScram("the first message needs a name and a nonce")
    # Extensions follow, such as tokenauth=true of delegation tokens, of which there are none.
    name, nonce = _unescaped(fields[0][2:]), fields[1][2:]
    if not name or len(name) > _NAME_CHARACTERS_MAX:
        raise MalformedScram(f"the name has {len(name)} characters, not 1 to {_NAME_CHARACTERS_MAX}")
    if not _NONCE.fullmatch(nonce):
        raise MalformedScram("the nonce is malformed")
    return ClientFirst(name, nonce, _unescaped(authzid_field[2:]), bare)


def server_first(nonce: str, credential: ScramCredential) -> str:
    """Return the first message of the server; ``nonce`` is the client's, followed by the server's."""
    return f"r={nonce},s={base64.b64encode(credential.salt).decode()},i={credential.iterations}"


def server_final(
    first: ClientFirst, challenge: str, data: bytes, credential: ScramCredential
) -> bytes | None:
    """Check the client's final message; return the server's, or None if the proof is wrong.

    Raises:
        MalformedScram: it is malformed, or belongs to another exchange.
    """
    text = _text(data)
    without_proof, separator, proof_text = text.rpartition(",p=")
    fields = without_proof.split(",")
    if not separator or len(fields) < 2 or not fields[0].startswith("c=") or not fields[1].startswith("r="):
        raise MalformedScram("the final message needs a channel binding, a nonce and a proof")
    binding = _NO_BINDING
    if first.authzid:
        header = f"n,a={first.authzid.replace('=', '=3D').replace(',', '=2C')},"
        binding = base64.b64encode(header.encode()).decode()
    if fields[0][2:] != binding:
        raise MalformedScram("the channel binding differs from that of the first message")
    nonce = challenge.partition(",")[0][2:]
    if not hmac.compare_digest(fields[1][2:].encode(), nonce.encode()):
        raise MalformedScram("the nonce is not the one of this exchange")
    try:
        proof = base64.b64decode(proof_text, validate=True)
    except binascii.Error as error:
        raise MalformedScram("the proof is not base64") from error
    mechanism = credential.mechanism
    message = f"{first.bare},{challenge},{without_proof}".encode()
    signature = _hmac(mechanism, credential.stored_key, message)
    if len(proof) != len(signature):
        return None
    client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
    if not hmac.compare_digest(hashlib.new(_HASHES[mechanism], client_key).digest(), credential.stored_key):
        return None
    return b"v=" + base64.b64encode(_hmac(mechanism, credential.server_key, message))


def _hmac(mechanism: ScramMechanism, key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, _HASHES[mechanism])


def _text(data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise MalformedScram("the message is not UTF-8") from error
    if "\0" in text:
        raise MalformedScram("the message has a null character")
    return text


def _unescaped(value: str) -> str:
    """Decode ``=2C`` and ``=3D``; any other ``=`` is an error."""

    def character(match: re.Match[str]) -> str:
        match match[0]:
            case "=2C":
                return ","
            case "=3D":
                return "="
            case _:
                raise MalformedScram("a name has '=' that is neither =2C nor =3D")

    return _ESCAPE.sub(character, value)
