"""SCRAM against the examples of the RFCs, and what a client may not send."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from app.security.principal import Principal
from app.security.sasl import Challenge, Done, Failed, ScramExchange
from app.security.scram import (
    ITERATIONS_MAX,
    MalformedScram,
    ScramCredential,
    ScramMechanism,
    credential_of,
    credential_of_password,
    is_password,
    parse_client_first,
    unknown_user,
)

SECRET = b"s" * 32
# RFC 7677, section 3.
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT_NONCE, SERVER_NONCE = "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FIRST = f"n,,n=user,r={CLIENT_NONCE}".encode()
SERVER_FIRST = f"r={CLIENT_NONCE}{SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
FINAL = f"c=biws,r={CLIENT_NONCE}{SERVER_NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def pencil() -> ScramCredential:
    return credential_of_password("SCRAM-SHA-256", "pencil", salt=SALT, iterations=4096)


def lookup(user: str, mechanism: ScramMechanism) -> ScramCredential:
    return pencil() if user == "user" else unknown_user(mechanism, user, SECRET)


def exchange() -> ScramExchange:
    return ScramExchange("SCRAM-SHA-256", lookup, SERVER_NONCE)


def test_the_example_of_rfc_7677() -> None:
    scram = exchange()
    assert scram.receive(FIRST) == Challenge(SERVER_FIRST)
    done = scram.receive(FINAL)
    assert isinstance(done, Done)
    assert done.data == SERVER_FINAL
    assert done.login.principal == Principal("user")
    assert done.login.credential == "user:user"


def client_final(challenge: bytes, password: str, mechanism: ScramMechanism, first_bare: str) -> bytes:
    """The client's side, written from RFC 5802 on its own."""
    name = mechanism.removeprefix("SCRAM-").replace("-", "").lower()
    fields = dict(field.split("=", 1) for field in challenge.decode().split(","))
    salted = hashlib.pbkdf2_hmac(name, password.encode(), base64.b64decode(fields["s"]), int(fields["i"]))
    client_key = hmac.digest(salted, b"Client Key", name)
    without_proof = f"c=biws,r={fields['r']}"
    message = f"{first_bare},{challenge.decode()},{without_proof}".encode()
    signature = hmac.digest(hashlib.new(name, client_key).digest(), message, name)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize(("password", "is_right"), [("correct horse", True), ("correct house", False)])
def test_only_the_right_password_logs_in(mechanism: ScramMechanism, password: str, is_right: bool) -> None:
    stored = credential_of_password(mechanism, "correct horse", salt=b"salt", iterations=4096)
    scram = ScramExchange(mechanism, lambda _user, _mechanism: stored, "server")
    challenge = scram.receive(b"n,,n=a=2Cb=3Dc,r=client")
    assert isinstance(challenge, Challenge)
    assert scram.user == "a,b=c"
    step = scram.receive(client_final(challenge.data, password, mechanism, "n=a=2Cb=3Dc,r=client"))
    assert isinstance(step, Done) is is_right
    assert isinstance(step, Failed) is not is_right
    assert is_password(stored, password) is is_right


def test_an_unknown_user_gets_a_challenge_that_stays_the_same_and_no_proof_fits() -> None:
    first, again = (exchange().receive(b"n,,n=nobody,r=x") for _ in range(2))
    assert first == again
    assert isinstance(first, Challenge)
    assert f"i={ITERATIONS_MAX}".encode() in first.data
    scram = exchange()
    challenge = scram.receive(b"n,,n=nobody,r=x")
    assert isinstance(challenge, Challenge)
    step = scram.receive(client_final(challenge.data, "pencil", "SCRAM-SHA-256", "n=nobody,r=x"))
    assert step == Failed("wrong user or password", "nobody")
    assert unknown_user("SCRAM-SHA-256", "nobody", b"another secret").salt not in first.data


@pytest.mark.parametrize(
    "final",
    [
        pytest.param(
            FINAL.replace(SERVER_NONCE.encode(), b""), id="without the server's nonce (CVE-2024-56128)"
        ),
        pytest.param(FINAL.replace(b"biws", b"eSws"), id="another channel binding"),
        pytest.param(FINAL.rpartition(b",p=")[0], id="no proof"),
        pytest.param(FINAL.rpartition(b",p=")[0] + b",p=", id="an empty proof"),
        pytest.param(FINAL.rpartition(b",p=")[0] + b",p=AAAA", id="a short proof"),
        pytest.param(FINAL[:-4] + b"AAA=", id="a wrong proof"),
        pytest.param(b"", id="nothing"),
        pytest.param(b"\xff", id="not UTF-8"),
    ],
)
def test_a_wrong_final_message_never_logs_in(final: bytes) -> None:
    scram = exchange()
    scram.receive(FIRST)
    assert isinstance(scram.receive(final), Failed)
    assert isinstance(scram.receive(FINAL), Failed), "an exchange that has ended does not go on"


@pytest.mark.parametrize(
    "first",
    [
        *(
            b"",
            b"n",
            b"n,,",
            b"n,,n=",
            b"n,,n=user",
            b"p=tls-unique,,n=u,r=x",
            b"y,,n=u,r=x",
            b"n,,n=a=b,r=x",
        ),
        *(b"n,,n=u,r=", b"n,,n=u,r=a b", b"n,,m=x,n=u,r=x", b"n,,n=" + b"u" * 300 + b",r=x", b"n,x,n=u,r=x"),
    ],
)
def test_a_malformed_first_message_is_refused(first: bytes) -> None:
    with pytest.raises(MalformedScram):
        parse_client_first(first)


def test_another_authorization_id_is_refused() -> None:
    assert isinstance(exchange().receive(b"n,a=admin,n=user,r=x"), Failed)
    assert isinstance(exchange().receive(b"n,a=user,n=user,r=x"), Challenge)


def test_a_credential_that_was_replaced_meanwhile_does_not_log_in() -> None:
    current = [pencil()]
    scram = ScramExchange("SCRAM-SHA-256", lambda _user, _mechanism: current[0], SERVER_NONCE)
    scram.receive(FIRST)
    current[0] = credential_of_password("SCRAM-SHA-256", "another", salt=SALT, iterations=4096)
    assert isinstance(scram.receive(FINAL), Failed)


@pytest.mark.parametrize(
    ("size", "salt", "iterations"),
    [(32, b"s", 4095), (32, b"s", 16_385), (0, b"s", 4096), (32, b"", 4096), (32, b"s" * 1025, 4096)],
)
def test_credentials_out_of_bounds_are_refused(size: int, salt: bytes, iterations: int) -> None:
    with pytest.raises(ValueError, match=r"iterations|salt"):
        credential_of("SCRAM-SHA-256", b"p" * size, salt=salt, iterations=iterations)


@pytest.mark.parametrize("size", [1, 31, 33, 100])
def test_a_salted_password_may_have_any_length_as_in_kafka(size: int) -> None:
    stored = credential_of("SCRAM-SHA-256", b"p" * size, salt=b"s", iterations=4096)
    assert len(stored.stored_key) == len(stored.server_key) == 32


def test_no_secret_is_in_a_representation() -> None:
    stored = pencil()
    assert repr(stored) == "ScramCredential(SCRAM-SHA-256, iterations=4096)"
