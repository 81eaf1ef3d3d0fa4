"""The files of a listener: what is refused, and how they are replaced."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from app.security.policy import LISTENERS
from app.security.tls.listener_tls import (
    ClientAuth,
    InvalidTlsFiles,
    ListenerTls,
    TlsOptions,
    warn_if_readable,
)
from app.security.tls.principal_mapping import PrincipalMapping
from app.security.tls.reload import TlsReload
from app.security.tls.settings import listener_tls, peer_tls
from app.settings import Settings
from tests.support.certificates import Authority, Pair


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def options(
    pair: Pair, *, client_ca_file: Path | None = None, client_auth: ClientAuth = "none"
) -> TlsOptions:
    return TlsOptions(
        certificate_file=pair.certificate_file,
        key_file=pair.key_file,
        client_ca_file=client_ca_file,
        client_auth=client_auth,
        mapping=PrincipalMapping(),
    )


def test_files_that_cannot_be_used_are_named(authority: Authority, tmp_path: Path) -> None:
    first, second = authority.server("first"), authority.server("second")
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    cases = {
        "missing.pem cannot be read: No such file": Pair(tmp_path / "missing.pem", first.key_file),
        "missing.key cannot be read: No such file": Pair(first.certificate_file, tmp_path / "missing.key"),
        "first.key does not belong to the certificate in .*second.pem": Pair(
            second.certificate_file, first.key_file
        ),
        "empty.pem cannot be read: it holds no certificate": Pair(empty, first.key_file),
        "empty.pem cannot be used": Pair(first.certificate_file, empty),
    }
    for message, pair in cases.items():
        with pytest.raises(InvalidTlsFiles, match=message):
            ListenerTls(options(pair))
    with pytest.raises(InvalidTlsFiles, match="set tls_client_ca_file"):
        ListenerTls(options(first, client_auth="required"))
    with pytest.raises(InvalidTlsFiles, match="holds no certificates of client CAs"):
        ListenerTls(options(first, client_auth="required", client_ca_file=empty))


def test_a_key_with_a_password_is_refused_without_asking(authority: Authority) -> None:
    pair = authority.server()
    key = serialization.load_pem_private_key(pair.key_file.read_bytes(), None)
    pair.key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(InvalidTlsFiles, match="the key is encrypted; store it without a password"):
        ListenerTls(options(pair))


def test_a_reload_replaces_the_context_and_a_broken_pair_keeps_it(authority: Authority) -> None:
    pair = authority.server()
    tls = ListenerTls(options(pair))
    first = tls.context
    authority.server()
    tls.reload()
    second = tls.context
    assert second is not first
    shutil.copy(authority.server("other").key_file, pair.key_file)
    with pytest.raises(InvalidTlsFiles, match="does not belong"):
        tls.reload()
    assert tls.context is second
    assert (tls.status().reloads, tls.status().reload_failures, tls.status().has_reload_failed) == (
        1,
        1,
        True,
    )
    authority.server()
    tls.reload()
    assert not tls.status().has_reload_failed


async def test_changed_files_are_noticed_once(authority: Authority, caplog: pytest.LogCaptureFixture) -> None:
    pair = authority.server()
    tls = ListenerTls(options(pair))
    reload = TlsReload({"kafka": tls}, interval_ms=0)
    await reload.reload(only_changed=True)
    assert tls.status().reloads == 0
    # As an administrator does it who replaces one file after the other.
    new = authority.server("new")
    new.certificate_file.replace(pair.certificate_file)
    with caplog.at_level(logging.INFO):
        await reload.reload(only_changed=True)
        await reload.reload(only_changed=True)
    assert tls.status().reload_failures == 1
    new.key_file.replace(pair.key_file)
    await reload.reload(only_changed=True)
    await reload.reload(only_changed=True)
    assert (tls.status().reloads, tls.status().has_reload_failed) == (1, False)
    assert any(
        message.startswith("kafka: the TLS files cannot be reloaded, new connections get the old certificate")
        for message in caplog.messages
    )
    await reload.reload()
    assert tls.status().reloads == 2, "a signal reloads what has not changed, too"
    await reload.close()


def test_a_listener_overrides_the_settings_of_all(authority: Authority) -> None:
    shared, own = authority.server("shared"), authority.server("own")

    def settings(**given: object) -> Settings:
        return Settings.model_validate(
            {"tls_certificate_file": shared.certificate_file, "tls_key_file": shared.key_file, **given}
        )

    assert listener_tls(Settings(), "http") is None
    tls = listener_tls(settings(), "binary")
    assert tls is not None
    assert tls.options.certificate_file == shared.certificate_file
    everywhere = {"tls_client_ca_file": shared.certificate_file, "tls_client_auth": "requested"}
    for listener in LISTENERS:
        given = {
            f"{listener}_tls_certificate_file": own.certificate_file,
            f"{listener}_tls_key_file": own.key_file,
            f"{listener}_tls_client_ca_file": authority.ca_file,
            f"{listener}_tls_client_auth": "required",
        }
        for name in LISTENERS:
            pair, auth, ca_file = (
                (own, "required", authority.ca_file)
                if name == listener
                else (shared, "requested", shared.certificate_file)
            )
            tls = listener_tls(settings(**everywhere, **given), name)
            assert tls is not None
            found = (tls.options.certificate_file, tls.options.key_file)
            assert found == (pair.certificate_file, pair.key_file)
            assert (tls.options.client_ca_file, tls.options.client_auth) == (ca_file, auth)
        assert listener_tls(settings(**{f"{listener}_tls_enable": False}), listener) is None
    with pytest.raises(
        InvalidTlsFiles, match="http: TLS needs a certificate and its key; set tls_certificate_file"
    ):
        listener_tls(Settings.model_validate({"http_tls_enable": True}), "http")
    with pytest.raises(InvalidTlsFiles, match="a rule begins with RULE: or is DEFAULT"):
        listener_tls(settings(tls_principal_mapping_rules="x"), "http")


def test_a_key_that_everybody_can_read_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    key = tmp_path / "server.key"
    key.write_text("key")
    key.chmod(0o640)
    warn_if_readable(key)
    assert not caplog.records
    key.chmod(0o644)
    warn_if_readable(key)
    assert f"chmod o-r {key}" in caplog.text


def test_the_settings_for_other_brokers_must_fit_the_listener(authority: Authority, tmp_path: Path) -> None:
    pair, empty = authority.server(), tmp_path / "empty.pem"
    empty.write_text("")
    tls: dict[str, object] = {
        "tls_certificate_file": pair.certificate_file,
        "tls_key_file": pair.key_file,
    }
    cases: list[tuple[str, dict[str, object]]] = [
        ("cluster_tls_ca_file has no use, because the HTTP listener has no TLS", {}),
        ("cluster_tls_ca_file has no use, because storage is not shared", tls | {"storage": "embedded"}),
        ("empty.pem holds no certificates", tls | {"cluster_tls_ca_file": empty}),
        ("set cluster_tls_key_file", tls | {"cluster_tls_certificate_file": pair.certificate_file}),
    ]
    for message, given in cases:
        settings = Settings.model_validate(
            {"storage": "shared", "cluster_tls_ca_file": authority.ca_file, **given}
        )
        with pytest.raises(InvalidTlsFiles, match=message):
            peer_tls(settings, listener_tls(settings, "http"))
    own = {"cluster_tls_certificate_file": pair.certificate_file, "cluster_tls_key_file": pair.key_file}
    settings = Settings.model_validate({"storage": "shared", **tls, **own})
    peer = peer_tls(settings, listener_tls(settings, "http"))
    assert peer is not None
