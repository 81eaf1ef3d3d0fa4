"""Explains errors in the settings of shared storage.

It is concluded from errors of PostgreSQL and of object stores.

An error is either a mistake in the set-up, which does not go away by itself and ends the start of a broker, or an
outage. For both, the text says what to do.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ..postgres.connection_counts import CONNECTIONS_MAX

_POSTGRES = "STELE_POSTGRES_URL"
_STORE = "STELE_OBJECT_STORE"


class InvalidStorage(Exception):
    """The settings of shared storage cannot be used; the text says what to change."""


class Advice(NamedTuple):
    """Advice for the operator. ``is_mistake``: waiting does not help."""

    text: str
    is_mistake: bool = True


# The first pattern that matches decides.
_OF_POSTGRES = (
    (
        r"password authentication failed|no password supplied|SCRAM",
        Advice(f"correct the user and the password in {_POSTGRES}, or change the password with ALTER ROLE"),
    ),
    (
        r"database .* does not exist|no such database",
        Advice(f"create the database with CREATE DATABASE, or correct its name in {_POSTGRES}"),
    ),
    (
        r"role .* does not exist",
        Advice(f"create the role with CREATE ROLE … LOGIN, or correct the user in {_POSTGRES}"),
    ),
    (
        r"no pg_hba\.conf entry|pg_hba\.conf rejects",
        Advice(
            "allow this client in pg_hba.conf; if the entry says hostssl, add ?sslmode=require to the URL"
        ),
    ),
    (
        r"unsupported startup parameter|settings of the session are not in force",
        Advice(
            f"let {_POSTGRES} lead to PostgreSQL itself: a connection pooler such as PgBouncer cannot be used, because"
            " each session needs settings and locks of its own"
        ),
    ),
    (
        r"permission denied",
        Advice("give the role its rights: GRANT CREATE ON DATABASE … TO …, or let it own the schema stele"),
    ),
    (
        r"server does not support SSL",
        Advice(f"turn ssl on in postgresql.conf, or write ?sslmode=prefer in {_POSTGRES}"),
    ),
    (
        r"certificate verify failed|root certificate file|does not match host name|server certificate for",
        Advice(
            f"name the certificate of the issuer with ?sslrootcert=FILE in {_POSTGRES}, and a host that is in it"
        ),
    ),
    (
        r"session is read-only|read-only transaction|not a primary|in hot standby",
        Advice(
            f"{_POSTGRES} leads to a standby only; name all hosts, as in postgresql://a,b/stele",
            is_mistake=False,
        ),
    ),
    (
        r"too many clients|remaining connection slots|too many connections",
        Advice(f"raise max_connections; each broker needs up to {CONNECTIONS_MAX}", is_mistake=False),
    ),
    (
        r"could not translate host name|failed to resolve host|Name or service not known",
        Advice(f"correct the host in {_POSTGRES}, or the name service of this machine", is_mistake=False),
    ),
    (
        r"Connection refused|timeout expired|timed out|No route to host|Network is unreachable",
        Advice(
            f"start PostgreSQL, let it listen on this network (listen_addresses), or correct {_POSTGRES}",
            is_mistake=False,
        ),
    ),
)
# By the scheme of the store: the settings with its credentials, and the rights that these need.
_KEYS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (with AWS_SESSION_TOKEN if they have one)",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS or GOOGLE_SERVICE_ACCOUNT",
    "az": "AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN, or AZURE_CLIENT_ID, AZURE_CLIENT_SECRET and"
    " AZURE_TENANT_ID",
}
_RIGHTS = {
    "s3": "s3:ListBucket on the bucket, and s3:GetObject, s3:PutObject and s3:DeleteObject on its objects",
    "gs": "of the role Storage Object User on the bucket",
    "az": "of the role Storage Blob Data Contributor on the container",
}
_OF_STORES = (
    (
        r"NoSuchBucket|ContainerNotFound",
        Advice(f"the bucket does not exist: create it, or correct its name in {_STORE}"),
    ),
    (
        r"RequestTimeTooSkewed|RequestExpired",
        Advice("the clock of this machine is wrong: set it, and keep it right with NTP"),
    ),
    (
        r"AuthorizationHeaderMalformed|redirect without LOCATION|PermanentRedirect|IllegalLocationConstraint",
        Advice(f"the bucket is in another region: add ?region=REGION to {_STORE}"),
    ),
    (
        r"InvalidAccessKeyId|SignatureDoesNotMatch|InvalidToken|ExpiredToken|AuthenticationFailed",
        Advice("the store does not accept the credentials: correct KEYS"),
    ),
    (
        r"169\.254\.169\.254|169\.254\.170\.|CredentialsProvider",
        Advice("this machine has no credentials for the store: set KEYS"),
    ),
    (
        r"AccessDenied|PermissionDenied|AllAccessDisabled|AuthorizationFailure|AuthorizationPermissionMismatch",
        Advice("give the credentials the rights RIGHTS"),
    ),
    (
        r"InvalidContentType|CorruptMessage|corrupt message|wrong version number",
        Advice(f"the endpoint does not speak TLS: write http:// in the endpoint of {_STORE}"),
    ),
    (
        r"HTTP request to an HTTPS server|plain HTTP request was sent to HTTPS",
        Advice(f"the endpoint speaks TLS: write https:// in the endpoint of {_STORE}"),
    ),
    (
        r"InvalidCertificate|UnknownIssuer|certificate",
        Advice(
            "the certificate of the store is not trusted: add its issuer to the certificates of the system"
        ),
    ),
    (
        r"dns error|failed to lookup address|Name or service not known",
        Advice(f"correct the host in {_STORE}, or the name service of this machine", is_mistake=False),
    ),
    (
        r"ConnectionRefused|Connection refused|TimedOut|timed out|deadline has elapsed|NetworkUnreachable",
        Advice(f"start the store, or correct its endpoint in {_STORE}", is_mistake=False),
    ),
)
_OTHERWISE = Advice("see the error; the broker tries again", is_mistake=False)
_REGION = re.compile(r"<Region>([a-z0-9-]{1,40})</Region>")
# After this, obstore repeats its error with all of its causes, over many lines.
_CAUSES = "\n\nDebug source:"


def postgres_advice(error: str) -> Advice:
    """Return what to do about an error of PostgreSQL or of libpq."""
    return _first(_OF_POSTGRES, error)


def _store_advice(url: str, error: str) -> Advice:
    """Return what to do about an error of an object store."""
    advice, scheme = _first(_OF_STORES, error), url.partition("://")[0]
    text = advice.text.replace("KEYS", _KEYS.get(scheme, "")).replace("RIGHTS", _RIGHTS.get(scheme, ""))
    region = _REGION.search(error)
    return advice._replace(text=text.replace("REGION", region[1]) if region else text)


def store_problem(url: str, error: str, *, named_by: str = _STORE) -> Advice:
    """Return an error of the store at ``url`` and what to do about it, in one text.

    ``named_by`` is the setting that has the URL.
    """
    advice = _store_advice(url, error)
    what_to_do = advice.text.replace(_STORE, named_by)
    text = f"the object store {url} cannot be used: {what_to_do} ({_without_causes(error)})"
    return advice._replace(text=text)


def _without_causes(error: str) -> str:
    """Return the first part of an error of an object store, for people."""
    return " ".join(error.partition(_CAUSES)[0].split())


def _first(table: tuple[tuple[str, Advice], ...], error: str) -> Advice:
    return next((advice for pattern, advice in table if re.search(pattern, error)), _OTHERWISE)


def brief_reason(error: str) -> str:
    """Return an error of an object store in one line, without its causes."""
    return _without_causes(error)
