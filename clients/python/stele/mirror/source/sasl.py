"""The client's half of a SASL login, without I/O.

::

    steps = exchange(login, nonce=nonce)
    message = next(steps)
    while True: message = steps.send(answer_to(message))    # StopIteration: the login has ended
"""

from __future__ import annotations

from collections.abc import Generator

from ...transport.scram import ScramClient, ScramFailed
from ..errors import SourceRefused
from ..properties import SaslLogin


def exchange(login: SaslLogin, *, nonce: str) -> Generator[bytes, bytes]:
    """Yield the messages to send; each answer of the broker is sent in.

    May take long, for the derivation of a key. Raises ``SourceRefused``.
    """
    if login.mechanism == "PLAIN":
        yield f"\0{login.user}\0{login.password}".encode()
    elif login.mechanism == "OAUTHBEARER":
        yield f"n,,\1auth=Bearer {login.token}\1\1".encode()
    else:
        scram = ScramClient(login.mechanism, login.user, login.password, nonce)
        try:
            challenge = yield scram.first()
            final = yield scram.final(challenge)
            # Success without the broker's proof would let anybody be the broker.
            scram.verify(final)
        except ScramFailed as error:
            raise SourceRefused(f"the login was broken off: {error}") from error
