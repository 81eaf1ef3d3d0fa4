"""Where the credentials of S3 come from: the environment, or files with profiles as the programs of AWS read them."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import pytest

from app.storage.shared.store.aws_profiles import ProfileCredentials, profile_of
from app.storage.shared.store.object_store import ObjectStore
from app.storage.shared.store.urls import open_object_store

_CREDENTIALS = """
[default]
aws_access_key_id = of-default
aws_secret_access_key = secret

[records]
aws_access_key_id = of-records
aws_secret_access_key = secret
aws_session_token = token-of-records
"""
_CONFIG = """
[profile records]
region = eu-central-1

[profile printed]
credential_process = {python} -c "print('{{\\"Version\\": 1, \\"AccessKeyId\\": \\"printed\\", \\"SecretAccessKey\\": \\"s\\"}}')"
"""
_VARIABLES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_PROFILE",
    "AWS_DEFAULT_PROFILE",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
)
_SCOPE = re.compile(rb"authorization: .*Credential=([^/]*)/\d+/([^/]*)/s3", re.IGNORECASE)


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of the files, of which there are none yet, and an environment without credentials."""
    for name in _VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return tmp_path


def write(files: Path) -> None:
    (files / "credentials").write_text(_CREDENTIALS)
    (files / "config").write_text(_CONFIG.format(python=sys.executable))


async def signed_by(option: str) -> list[tuple[str, str, bool]]:
    """Return key, region and whether there was a session token, of a request of a store."""
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b'HTTP/1.1 200 OK\r\netag: "1"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n')
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        store: ObjectStore = open_object_store(f"s3://bucket?endpoint=http://127.0.0.1:{port}{option}")
        await store.put("w/1", b"bytes")
    signed: list[tuple[str, str, bool]] = []
    for head in heads:
        scope = _SCOPE.search(head)
        assert scope is not None, head
        signed.append((scope[1].decode(), scope[2].decode(), b"x-amz-security-token" in head.lower()))
    return signed


@pytest.mark.parametrize(
    ("environment", "option", "signed"),
    [
        ({}, "", ("of-default", "us-east-1", False)),
        ({"AWS_PROFILE": "records"}, "", ("of-records", "eu-central-1", True)),
        ({"AWS_DEFAULT_PROFILE": "records"}, "", ("of-records", "eu-central-1", True)),
        ({"AWS_PROFILE": "printed"}, "", ("printed", "us-east-1", False)),
        ({"AWS_PROFILE": "records"}, "&region=us-west-2", ("of-records", "us-west-2", True)),
        ({"AWS_PROFILE": "records", "AWS_REGION": "us-west-1"}, "", ("of-records", "us-west-1", True)),
        (
            {"AWS_PROFILE": "records", "AWS_ACCESS_KEY_ID": "given", "AWS_SECRET_ACCESS_KEY": "secret"},
            "",
            ("given", "us-east-1", False),
        ),
    ],
)
async def test_requests_are_signed_with_the_credentials_that_the_programs_of_aws_would_use(
    files: Path,
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    option: str,
    signed: tuple[str, str, bool],
) -> None:
    write(files)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert await signed_by(option) == [signed]


async def test_keys_that_are_renewed_in_the_file_are_used(files: Path) -> None:
    write(files)
    credentials = ProfileCredentials("records")
    assert credentials()["access_key_id"] == "of-records"
    (files / "credentials").write_text(_CREDENTIALS.replace("of-records", "renewed"))
    assert credentials()["access_key_id"] == "renewed"


@pytest.mark.parametrize(("profile", "hint"), [("missing", "missing"), ("empty", "has no credentials")])
def test_a_profile_without_credentials_is_an_error_that_names_it(
    files: Path, monkeypatch: pytest.MonkeyPatch, profile: str, hint: str
) -> None:
    write(files)
    with (files / "config").open("a") as file:
        file.write("\n[profile empty]\nregion = eu-west-1\n")
    monkeypatch.setenv("AWS_PROFILE", profile)
    with pytest.raises(ValueError, match=f"the profile {profile!r} of AWS.*{hint}"):
        open_object_store("s3://bucket")


def test_a_missing_botocore_is_explained(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(files)
    monkeypatch.setitem(sys.modules, "botocore.session", None)
    with pytest.raises(ValueError, match="pip install botocore"):
        open_object_store("s3://bucket")


def test_files_do_not_count_where_a_token_of_the_machine_does(files: Path) -> None:
    write(files)
    assert profile_of({"AWS_WEB_IDENTITY_TOKEN_FILE": "/var/run/token", "AWS_PROFILE": "records"}) is None
    assert profile_of({"AWS_SHARED_CREDENTIALS_FILE": "/none", "AWS_CONFIG_FILE": "/none"}) is None
