"""Users over the Kafka protocol (KIP-554)."""

from __future__ import annotations

from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.users import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

from app.security.scram import salt_password
from tests.support.kafka_peer import KafkaPeer


def set_password(peer: KafkaPeer, user: str, password: str) -> None:
    salted = salt_password("SCRAM-SHA-256", password, b"salt", 4096)
    upsertion = ScramCredentialUpsertion(
        name=user, mechanism=1, iterations=4096, salt=b"salt", salted_password=salted
    )
    (done,) = peer.call(AlterUserScramCredentialsRequest(deletions=(), upsertions=[upsertion]), 0).results
    assert done.error_code == ErrorCode.NONE, done


def delete_user(peer: KafkaPeer, user: str) -> None:
    deletion = ScramCredentialDeletion(name=user, mechanism=1)
    (done,) = peer.call(AlterUserScramCredentialsRequest(deletions=[deletion], upsertions=()), 0).results
    assert done.error_code == ErrorCode.NONE, done
