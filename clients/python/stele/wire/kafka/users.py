"""SCRAM credentials (KIP-554)."""

from __future__ import annotations

from collections.abc import Sequence

from ..schema import Int8, Int16, Int32, message
from .api import Api

# ── DescribeUserScramCredentials (api key 50): lists SCRAM users (KIP-554).


@message
class UserName:
    name: str


@message
class DescribeUserScramCredentialsRequest:
    users: Sequence[UserName] | None


@message
class CredentialInfo:
    mechanism: Int8
    iterations: Int32


@message
class DescribeUserScramCredentialsResult:
    user: str
    error_code: Int16
    error_message: str | None
    credential_infos: Sequence[CredentialInfo]


@message
class DescribeUserScramCredentialsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: str | None
    results: Sequence[DescribeUserScramCredentialsResult]


DESCRIBE_USER_SCRAM_CREDENTIALS_API = Api(
    key=50,
    name="DescribeUserScramCredentials",
    versions=(0, 0),
    flexible_since=0,
    request=DescribeUserScramCredentialsRequest,
    response=DescribeUserScramCredentialsResponse,
)


# ── AlterUserScramCredentials (api key 51): adds and removes SCRAM users (KIP-554).


@message
class ScramCredentialDeletion:
    name: str
    mechanism: Int8


@message
class ScramCredentialUpsertion:
    name: str
    mechanism: Int8
    iterations: Int32
    salt: bytes
    salted_password: bytes


@message
class AlterUserScramCredentialsRequest:
    deletions: Sequence[ScramCredentialDeletion]
    upsertions: Sequence[ScramCredentialUpsertion]


@message
class AlterUserScramCredentialsResult:
    user: str
    error_code: Int16
    error_message: str | None


@message
class AlterUserScramCredentialsResponse:
    throttle_time_ms: Int32 = 0
    results: Sequence[AlterUserScramCredentialsResult]


ALTER_USER_SCRAM_CREDENTIALS_API = Api(
    key=51,
    name="AlterUserScramCredentials",
    versions=(0, 0),
    flexible_since=0,
    request=AlterUserScramCredentialsRequest,
    response=AlterUserScramCredentialsResponse,
)
