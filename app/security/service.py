"""Put the parts of authentication together over the file of the catalog.

Settings say which parts there are.
"""

from __future__ import annotations

import importlib.util
import logging
from dataclasses import dataclass
from pathlib import Path

from ..broker.cluster import Cluster, SoloCluster
from ..clock import Clock
from ..cluster.acls import AclStore
from ..cluster.credentials import CredentialStore
from ..cluster.sqlite.catalog import CatalogDatabase
from ..settings import ListenerName, Settings
from .acls import Acls
from .authenticator import Authenticator
from .authorizer import Authorizer
from .credentials import Credentials
from .jwt_keys import JwtKeys
from .jwt_tokens import JwtOptions, JwtValidator
from .policy import (
    ListenerSecurity,
    UnsafeSettings,
    checks_acls,
    mechanisms_of,
    mode_of,
    super_users_of,
)
from .tls.listener_tls import warn_if_readable

logger = logging.getLogger(__name__)


class Security:
    """Users, keys, logins and access rules of one broker."""

    def __init__(
        self,
        settings: Settings,
        credentials: Credentials,
        authenticator: Authenticator,
        authorizer: Authorizer | None,
        keys: JwtKeys | None,
    ) -> None:
        self._settings = settings
        self.credentials = credentials
        self.authenticator = authenticator
        self.authorizer = authorizer
        self._keys = keys

    def listener(self, name: ListenerName) -> ListenerSecurity:
        settings = self._settings
        return ListenerSecurity(
            listener=name,
            mode=mode_of(settings, name),
            authenticator=self.authenticator,
            credentials=self.credentials,
            login_timeout_ms=settings.login_timeout_ms,
            session_ms_max=settings.connections_max_reauth_ms,
            may_reveal=settings.allow_plaintext_passwords,
            guards_users=any(mode_of(settings, listener) != "none" for listener in settings.listeners),
            authorizer=self.authorizer,
        )

    def process_key(self, name: str, listener: ListenerName = "binary") -> str:
        """Return a key for a process that the broker runs, by the name of its part.

        It is empty if the listener has no logins.
        """
        if mode_of(self._settings, listener) == "none":
            return ""
        return self.credentials.internal_key(name, now_ms=self.authenticator.now_ms())

    async def close(self) -> None:
        if self._keys is not None:
            await self._keys.close()
        self.authenticator.close()
        if self.authorizer is not None:
            await self.authorizer.acls.close()
        await self.credentials.close()


def check_login_settings(settings: Settings) -> None:
    """Refuse login settings that are incomplete or lock out a part of the broker.

    Raises:
        UnsafeSettings: they are; for example, the keys of an issuer alone would let in all of its tokens.
    """
    has_cdc_login = settings.cdc.dsn is not None and mode_of(settings, "binary") != "none"
    if has_cdc_login and not {"PLAIN", "OAUTHBEARER"} & set(mechanisms_of(settings)):
        raise UnsafeSettings(
            "the broker's CDC connector logs in with an API key; add PLAIN to STELE_SASL_MECHANISMS, "
            "or run the connector on its own (stele cdc)"
        )
    super_users_of(settings)
    if settings.oauth_jwks is None:
        if "OAUTHBEARER" in mechanisms_of(settings):
            raise UnsafeSettings("OAUTHBEARER needs the keys of the issuer of tokens; set STELE_OAUTH_JWKS")
        return
    for name in ("oauth_issuer", "oauth_audience"):
        if not getattr(settings, name):
            raise UnsafeSettings(
                f"tokens are accepted from one issuer, for one audience; set STELE_{name.upper()}"
            )
    if importlib.util.find_spec("jwt") is None or importlib.util.find_spec("cryptography") is None:
        raise UnsafeSettings("tokens need the extra oauth: pip install 'stele-broker[oauth]'")


@dataclass(frozen=True, slots=True)
class SecurityStores:
    """The stores of users and rules, and the cluster that reports their changes.

    Other brokers make such changes.
    """

    credentials: CredentialStore
    acls: AclStore
    cluster: Cluster
    # What the logs name.
    location: Path

    @staticmethod
    def of_file(catalog: Path) -> SecurityStores:
        """Return the stores in the opened catalog file of a broker on its own."""
        warn_if_readable(catalog)
        return SecurityStores(
            CredentialStore(CatalogDatabase(catalog)),
            AclStore(CatalogDatabase(catalog)),
            SoloCluster(),
            catalog.parent,
        )


async def open_security(settings: Settings, stores: SecurityStores, clock: Clock) -> Security:
    """Open users, keys and logins.

    Raises:
        UnsafeSettings: the keys of the issuer of tokens are neither a file nor at an https URL.
    """
    keys = tokens = None
    if settings.oauth_jwks is not None:
        try:
            keys = JwtKeys(settings.oauth_jwks, clock=clock)
        except ValueError as error:
            raise UnsafeSettings(str(error)) from error
        tokens = JwtValidator(
            keys,
            JwtOptions(
                issuer=settings.oauth_issuer or "",
                audience=settings.oauth_audience or "",
                principal_claim=settings.oauth_principal_claim,
            ),
        )
        await keys.start()
    cluster = stores.cluster
    credentials = Credentials(stores.credentials, before_change=cluster.refresh)
    await credentials.open()
    cluster.observe("credentials", credentials.refresh)
    authenticator = Authenticator(
        credentials,
        clock=clock,
        mechanisms=mechanisms_of(settings),
        tokens=tokens,
        free_failures=settings.login_failures_free,
    )
    authorizer: Authorizer | None = None
    if checks_acls(settings):
        acls = Acls(stores.acls, before_change=cluster.refresh)
        await acls.open()
        cluster.observe("acls", acls.refresh)
        super_users = super_users_of(settings)
        authorizer = Authorizer(
            acls,
            clock=clock,
            super_users=super_users,
            allows_without_acl=settings.allow_everyone_if_no_acl_found,
        )
        if not acls.all() and not super_users and not settings.allow_everyone_if_no_acl_found:
            logger.warning(
                "access rules decide, and there are none: no client may do anything; set STELE_SUPER_USERS=User:NAME, or "
                "stop the broker and run: stele acls add --admin User:NAME --data-dir %s",
                stores.location,
            )
    is_needed = any(mode_of(settings, name) == "required" for name in settings.listeners)
    if is_needed and credentials.is_empty() and tokens is None:
        logger.warning(
            "logins are required, and there are no users and no API keys; stop the broker and create the first user "
            "with: stele user add NAME --data-dir %s",
            stores.location,
        )
    return Security(settings, credentials, authenticator, authorizer, keys)
