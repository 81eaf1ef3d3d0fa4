"""What the settings say about logins and access rules, put together."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from app.clock import SystemClock
from app.security.acl import READ_TOPIC
from app.security.audit import Peer
from app.security.principal import Principal
from app.security.service import Security, SecurityStores, open_security
from app.settings import Settings
from tests.unit.security.test_jwt import OPTIONS, claims, key_set, signed

PEER = Peer("http", "10.0.0.1:5000", "10.0.0.1")


@asynccontextmanager
async def opened(path: Path, **given: object) -> AsyncGenerator[Security]:
    catalog = path / "metadata.sqlite"
    catalog.touch(mode=0o600)
    settings = Settings.model_validate({"data_dir": path, **given})
    security = await open_security(settings, SecurityStores.of_file(catalog), SystemClock())
    try:
        yield security
    finally:
        await security.close()


async def test_the_claim_that_names_the_user_is_a_setting(tmp_path: Path) -> None:
    keys = tmp_path / "jwks.json"
    keys.write_bytes(key_set())
    issuer = {"oauth_jwks": str(keys), "oauth_issuer": OPTIONS.issuer, "oauth_audience": OPTIONS.audience}
    async with opened(tmp_path, **issuer, oauth_principal_claim="client_id") as security:
        login = await security.authenticator.login_token(signed(claims(client_id="ingest")), PEER)
        assert login is not None
        assert login.principal == Principal("ingest")


async def test_without_a_rule_for_it_a_resource_is_everybodys_only_if_a_setting_says_so(
    tmp_path: Path,
) -> None:
    for is_allowed in (False, True):
        given = {"authorization": "acls", "allow_everyone_if_no_acl_found": is_allowed}
        async with opened(tmp_path, **given) as security:
            access = security.listener("http").access(Principal("alice"), "10.0.0.1")
            assert access is not None
            assert access.allows(READ_TOPIC, "orders") is is_allowed
